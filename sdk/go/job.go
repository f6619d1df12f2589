package schedo

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// Lease is the right to run one attempt of a job, as the server gives it (docs/protocol.md).
type Lease struct {
	Lease        string          `json:"lease"`
	Job          string          `json:"job"`
	Attempt      int             `json:"attempt"`
	Task         string          `json:"task"`
	Queue        string          `json:"queue"`
	Payload      json.RawMessage `json:"payload"`
	ScheduledFor time.Time       `json:"scheduled_for"`
	Trigger      string          `json:"trigger"`
	Timeout      float64         `json:"timeout"` // seconds; 0: none
	Schedule     string          `json:"schedule"`
	Failures     int             `json:"failures"`
	MaxAttempts  int             `json:"max_attempts"`
	MissedCount  int             `json:"missed_count"`
	Tags         []string        `json:"tags"`
	Meta         map[string]any  `json:"meta"`
	Traceparent  string          `json:"traceparent"`
	Tracestate   string          `json:"tracestate"`
	AtMostOnce   bool            `json:"at_most_once"`
	Offer        bool            `json:"offer"`
}

var leaseForm = regexp.MustCompile(`^[0-9A-Z]{13}\.\d+\.\d+$`)

// StopReason is why an attempt has to stop. It is the cause of the end of the handler's context.
type StopReason string

const (
	Cancelled StopReason = "cancel"
	TimedOut  StopReason = "timeout"
	Revoked   StopReason = "revoked"  // another worker has the job
	Shutdown  StopReason = "shutdown" // the worker ends and its grace time is over
)

func (r StopReason) Error() string { return "the attempt has to stop: " + string(r) }

// Progress of a running attempt. A nil Percent and an empty Message say nothing new.
type Progress struct {
	Percent *float64
	Message string
}

// CurrentJob is the job that a handler runs.
type CurrentJob struct {
	Lease
	ctx    context.Context
	stop   context.CancelCauseFunc
	report func(update)
	output output
	began  time.Time
	ended  bool // guarded by the lock of attempts
}

type jobKey struct{}

// FromContext returns the job whose handler has this context; nil outside of a handler.
func FromContext(ctx context.Context) *CurrentJob {
	job, _ := ctx.Value(jobKey{}).(*CurrentJob)
	return job
}

// IsLastAttempt reports whether the job has no retry left if this attempt fails.
func (j *CurrentJob) IsLastAttempt() bool { return j.Failures+1 >= j.MaxAttempts }

// Progress reports progress. The server gets at most ten reports of an attempt a second; later ones replace earlier ones.
func (j *CurrentJob) Progress(progress Progress) {
	j.report(update{Percent: progress.Percent, Message: progress.Message})
}

// Log writes a line that is shown with the job's progress while it runs, and kept as its output.
func (j *CurrentJob) Log(line string) {
	j.output.write(line + "\n")
	j.report(update{Log: line})
}

// safeText replaces what the server refuses in a text: U+0000 and bytes that are not UTF-8.
func safeText(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\ufffd"), "\x00", "\ufffd")
}

// cut returns at most so many bytes of the text, and no half of a character.
func cut(text string, most int) string {
	if len(text) <= most {
		return safeText(text)
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return safeText(text[:most])
}
