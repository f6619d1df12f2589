package schedo

import (
	"encoding/json"
	"time"
)

// Retry is a retry policy.
type Retry struct {
	MaxAttempts int     `json:"max_attempts,omitempty"`
	Backoff     string  `json:"backoff,omitempty"` // exponential or fixed
	Initial     string  `json:"initial,omitempty"`
	Factor      float64 `json:"factor,omitempty"`
	Max         string  `json:"max,omitempty"`
	Jitter      float64 `json:"jitter,omitempty"`
}

// Keep says how long a job is kept after its end.
type Keep struct {
	Completed string `json:"completed,omitempty"`
	Failed    string `json:"failed,omitempty"`
	Cancelled string `json:"cancelled,omitempty"`
}

// Requirements restrict the workers that may run a job.
type Requirements struct {
	Labels    map[string]any `json:"labels,omitempty"`
	Resources map[string]any `json:"resources,omitempty"`
	Worker    string         `json:"worker,omitempty"`
}

// JobOptions are the options of a job that is submitted. The zero value of each field is its default.
type JobOptions struct {
	Delay       string         `json:"delay,omitempty"` // due after this time; or RunAt
	RunAt       *time.Time     `json:"run_at,omitempty"`
	Queue       string         `json:"queue,omitempty"`
	Priority    int            `json:"priority,omitempty"` // -9 to 9; higher runs first
	Retry       any            `json:"retry,omitempty"`    // a Retry, the number of attempts, or a preset
	Timeout     string         `json:"timeout,omitempty"`
	ExpiresIn   string         `json:"expires_in,omitempty"`
	ExpiresAt   *time.Time     `json:"expires_at,omitempty"`
	Unique      any            `json:"unique,omitempty"` // a key, or an object as in docs/api.md
	Delivery    string         `json:"delivery,omitempty"`
	Tags        []string       `json:"tags,omitempty"`
	Meta        map[string]any `json:"meta,omitempty"`
	Requires    *Requirements  `json:"requires,omitempty"`
	Prefer      []any          `json:"prefer,omitempty"`
	OnFailure   any            `json:"on_failure,omitempty"`
	Keep        *Keep          `json:"keep,omitempty"`
	Traceparent string         `json:"traceparent,omitempty"`
	Tracestate  string         `json:"tracestate,omitempty"`
}

// JobSpec is a job to submit.
type JobSpec struct {
	Task    string `json:"task"`
	Payload any    `json:"payload,omitempty"`
	JobOptions
}

// JobError is why an attempt failed.
type JobError struct {
	Type       string `json:"type"`
	Message    string `json:"message"`
	ExitCode   *int   `json:"exit_code"`
	Signal     string `json:"signal"`
	HTTPStatus *int   `json:"http_status"`
	Traceback  string `json:"traceback"`
}

// Job is a job as the server has it.
type Job struct {
	ID           string          `json:"id"`
	State        string          `json:"state"`
	Task         string          `json:"task"`
	Queue        string          `json:"queue"`
	Priority     int             `json:"priority"`
	Payload      json.RawMessage `json:"payload"`
	Attempt      int             `json:"attempt"`
	MaxAttempts  int             `json:"max_attempts"`
	Failures     int             `json:"failures"`
	Losses       int             `json:"losses"`
	CreatedAt    time.Time       `json:"created_at"`
	ScheduledAt  time.Time       `json:"scheduled_at"`
	StartedAt    *time.Time      `json:"started_at"`
	CompletedAt  *time.Time      `json:"completed_at"`
	FailedAt     *time.Time      `json:"failed_at"`
	CancelledAt  *time.Time      `json:"cancelled_at"`
	ExpiredAt    *time.Time      `json:"expired_at"`
	ScheduledFor *time.Time      `json:"scheduled_for"`
	Schedule     string          `json:"schedule"`
	Worker       string          `json:"worker"`
	UniqueKey    string          `json:"unique_key"`
	Tags         []string        `json:"tags"`
	Meta         map[string]any  `json:"meta"`
	Result       json.RawMessage `json:"result"`
	Error        *JobError       `json:"error"`
	Conflict     bool            `json:"conflict"` // another job holds the unique key; this is that job
	Warnings     []string        `json:"warnings"`
}

// HasEnded reports whether the job is in a final state.
func (j *Job) HasEnded() bool {
	switch j.State {
	case "completed", "failed", "cancelled", "expired":
		return true
	}
	return false
}

// BatchItem is a job of a batch, or why it was refused.
type BatchItem struct {
	Job     *Job   `json:"job"`
	Problem *Error `json:"problem"`
}

// InvokeOptions are the options of an invocation.
type InvokeOptions struct {
	Queue    string         `json:"queue,omitempty"`
	Timeout  string         `json:"timeout,omitempty"`
	Tags     []string       `json:"tags,omitempty"`
	Meta     map[string]any `json:"meta,omitempty"`
	Requires *Requirements  `json:"requires,omitempty"`
	Prefer   []any          `json:"prefer,omitempty"`
	OnLoss   string         `json:"on_loss,omitempty"`
	// Wait is how long to wait for the end, at most 5 minutes; by default 30 s. Negative: only until a worker has accepted.
	Wait time.Duration `json:"-"`
}
