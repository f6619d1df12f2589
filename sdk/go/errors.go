package schedo

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Error is an error that the server answered with (RFC 9457). Code is stable; docs/api.md lists all codes.
type Error struct {
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Detail    string `json:"detail"`
	RequestID string `json:"request_id"`
	Errors    []struct {
		Pointer   string `json:"pointer"`
		Parameter string `json:"parameter"`
		Detail    string `json:"detail"`
	} `json:"errors"`
	// Job is the job of an invocation that failed.
	Job *Job `json:"job"`

	retryAfter time.Duration // negative: the server did not say
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return e.Code
	}
	return e.Detail
}

// ErrUnreachable is wrapped by errors of requests that got no response: they may or may not have been carried out.
var ErrUnreachable = errors.New("no response from the server")

// JobFailed says that a job did not complete: it failed, was cancelled or has expired.
type JobFailed struct{ Job Job }

func (e *JobFailed) Error() string {
	text := fmt.Sprintf("job %s of task %s %s", e.Job.ID, e.Job.Task, e.Job.State)
	if failure := e.Job.Error; failure != nil {
		text += fmt.Sprintf(": %s: %s", failure.Type, failure.Message)
	}
	return text
}

// Snooze is returned by a handler to run its job again after Delay, such as "5m". The attempt is not counted.
type Snooze struct{ Delay string }

func (e *Snooze) Error() string { return "snoozed for " + e.Delay }

// Discard is returned by a handler to fail its job without further retries.
type Discard struct{ Reason string }

func (e *Discard) Error() string { return e.Reason }

// isBusy reports whether the server is alive and asks to send the request again later.
func isBusy(err error) (*Error, bool) {
	var refusal *Error
	ok := errors.As(err, &refusal) &&
		(refusal.Status == http.StatusTooManyRequests || refusal.Status == http.StatusServiceUnavailable)
	return refusal, ok
}

// isUnacceptable reports whether the server can never accept the request.
func isUnacceptable(err error) bool {
	var refusal *Error
	if !errors.As(err, &refusal) {
		return false
	}
	switch refusal.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	return false
}
