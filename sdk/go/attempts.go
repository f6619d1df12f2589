package schedo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

const (
	textBytesMax     = 8_000
	stopGrace        = 5 * time.Second // for a handler to end after its stop; later its slot is used again
	progressInterval = 100 * time.Millisecond
)

type handler func(ctx context.Context, payload json.RawMessage) (any, error)

type result map[string]any

// attempts runs handlers. send gets their results and sendProgress their progress, onEnd is called after each end.
type attempts struct {
	handlers     map[string]handler
	send         func(*message)
	sendProgress func(update)
	onEnd        func()

	mutex   sync.Mutex
	running map[string]*CurrentJob
	updates map[string]update
	timer   *time.Timer
}

func newAttempts(handlers map[string]handler) *attempts {
	return &attempts{handlers: handlers, onEnd: func() {}, running: map[string]*CurrentJob{}, updates: map[string]update{}}
}

// whenEnded sets what is called after each end from now on.
func (a *attempts) whenEnded(onEnd func()) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.onEnd = onEnd
}

func (a *attempts) leases() []string {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	leases := make([]string, 0, len(a.running))
	for lease := range a.running {
		leases = append(leases, lease)
	}
	return leases
}

func (a *attempts) count() int {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return len(a.running)
}

// start runs the attempt; it returns false if it runs already.
func (a *attempts) start(lease Lease) bool {
	handle, isKnown := a.handlers[lease.Task]
	ctx, stop := context.WithCancelCause(context.Background())
	job := &CurrentJob{Lease: lease, ctx: ctx, stop: stop, began: time.Now()}
	job.report = func(news update) { a.note(job, news) }
	a.mutex.Lock()
	if _, runs := a.running[lease.Lease]; runs {
		a.mutex.Unlock()
		return false
	}
	a.running[lease.Lease] = job
	a.mutex.Unlock()
	if !isKnown {
		detail := fmt.Sprintf("this worker has no task '%s'", lease.Task)
		go a.finish(job, failed("unknown-task", detail, "", false))
		return true
	}
	go func() {
		// This stays the result if the handler never returns because it ends its goroutine.
		ended := failed("goexit", "the handler called runtime.Goexit", "", true)
		defer func() { a.finish(job, ended) }()
		ended = run(context.WithValue(ctx, jobKey{}, job), handle, job)
	}()
	return true
}

// stop asks the attempt to stop; it returns false if it does not run or has been asked before.
func (a *attempts) stop(lease string, reason StopReason) bool {
	job := a.find(lease)
	if job == nil || context.Cause(job.ctx) != nil {
		return false
	}
	job.stop(reason)
	time.AfterFunc(stopGrace, func() { a.finish(job, result{"outcome": "stopped"}) })
	return true
}

// abandon stops the attempt and reports nothing; it returns whether it ran.
func (a *attempts) abandon(lease string, reason StopReason) bool {
	job := a.find(lease)
	if job == nil || !a.markEnded(job) {
		return false
	}
	job.stop(reason)
	a.forget(job)()
	return true
}

// release gives every attempt back, so that another worker runs it again, and stops it.
func (a *attempts) release() {
	for _, lease := range a.leases() {
		if job := a.find(lease); job != nil {
			a.finish(job, result{"outcome": "released"})
			job.stop(Shutdown)
		}
	}
}

// close stops every attempt and reports nothing: another process has its job, or will have it.
func (a *attempts) close() {
	for _, lease := range a.leases() {
		a.abandon(lease, Revoked)
	}
}

func (a *attempts) find(lease string) *CurrentJob {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.running[lease]
}

// markEnded returns false if the attempt has ended before: only its first end counts.
func (a *attempts) markEnded(job *CurrentJob) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	isFirst := !job.ended
	job.ended = true
	return isFirst
}

// forget removes an attempt that has ended; it returns what to call then.
func (a *attempts) forget(job *CurrentJob) (onEnd func()) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	delete(a.running, job.Lease.Lease)
	delete(a.updates, job.Lease.Lease)
	return a.onEnd
}

func (a *attempts) finish(job *CurrentJob, ended result) {
	if !a.markEnded(job) {
		return
	}
	if context.Cause(job.ctx) != nil && ended["outcome"] == "failed" {
		ended = result{"outcome": "stopped"}
	}
	ended["ran"] = time.Since(job.began).Seconds()
	if output := job.output.render(); output != nil {
		ended["output"] = output
	}
	// The message is in the outbox before the attempt is forgotten: a poll must list one or the other.
	a.send(resultMessage(job.Lease.Lease, ended))
	a.forget(job)()
}

// note merges the progress of an interval.
func (a *attempts) note(job *CurrentJob, news update) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if job.ended {
		return
	}
	news.Lease = job.Lease.Lease
	a.updates[news.Lease] = a.updates[news.Lease].then(news)
	if a.timer == nil {
		a.timer = time.AfterFunc(progressInterval, a.flush)
	}
}

func (a *attempts) flush() {
	a.mutex.Lock()
	updates := a.updates
	a.updates, a.timer = map[string]update{}, nil
	a.mutex.Unlock()
	for _, each := range updates {
		a.sendProgress(each)
	}
}

func run(ctx context.Context, handle handler, job *CurrentJob) (ended result) {
	defer func() {
		if cause := recover(); cause != nil {
			ended = failed("panic", fmt.Sprint(cause), string(debug.Stack()), true)
		}
	}()
	value, err := handle(ctx, job.Payload)
	var snooze *Snooze
	var discard *Discard
	switch {
	case err == nil:
		text, err := encodeResult(value)
		if err != nil { // a channel, a function or a number such as NaN
			return failed("result-not-json", err.Error(), "", false)
		}
		return result{"outcome": "completed", "result": text}
	case errors.As(err, &snooze):
		return result{"outcome": "snoozed", "delay": snooze.Delay}
	case errors.As(err, &discard):
		return failed("Discard", discard.Reason, "", false)
	}
	return failed(fmt.Sprintf("%T", err), err.Error(), "", true)
}

func failed(kind, detail, traceback string, isRetryable bool) result {
	failure := map[string]any{"type": cut(kind, textBytesMax), "message": cut(detail, textBytesMax)}
	if traceback != "" {
		failure["traceback"] = cut(traceback, textBytesMax)
	}
	return result{"outcome": "failed", "error": failure, "retryable": isRetryable}
}

func resultMessage(lease string, ended result) *message {
	ended["lease"] = lease
	text, _ := encode(ended) // it has only texts, numbers and JSON
	return &message{field: "results", lease: lease, text: text}
}

// encodeResult returns the JSON of what a handler returned; a MarshalJSON that panics is an error of the handler, too.
func encodeResult(value any) (text json.RawMessage, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("its encoding panicked: %v", cause)
		}
	}()
	return encode(value)
}
