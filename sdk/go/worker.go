package schedo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"regexp"
	"sort"
	"sync"
	"syscall"
	"time"
)

// WorkerOptions describe a worker. The zero value of each field is its default.
type WorkerOptions struct {
	// URL and Token are by default SCHEDO_URL, or http://127.0.0.1:8080, and SCHEDO_TOKEN from the environment.
	URL   string
	Token string
	// Name begins with a letter or digit; letters, digits, '.', '_' and '-' follow, at most 128 in all. By default it is
	// made of the host and the process.
	Name string
	// Slots is how many attempts run at the same time; by default 10.
	Slots int
	// Queues are those from which the worker takes jobs; by default any.
	Queues []string
	// Labels are properties that jobs can require, such as {"region": "eu"}: texts, numbers and truth values.
	Labels map[string]any
	// Resources are amounts that jobs can require, such as {"cpu": 4, "memory": "8GiB"}.
	Resources map[string]any
	// Version is that of the worker's code; the server only displays it.
	Version string
	// Grace is how long running attempts have to end after a stop; then other workers run them again. By default 25 s, because
	// Kubernetes kills a container 30 s after its SIGTERM.
	Grace time.Duration
	// SessionTimeout is how long the worker may be silent before the server treats it as lost; by default "30s".
	SessionTimeout string
	// Log gets what the worker has to say; by default it goes to the standard logger.
	Log func(line string)
}

// TaskDefaults are options of the task's jobs that do not set them.
type TaskDefaults struct {
	Retry     any    `json:"retry,omitempty"` // a Retry, the number of attempts, or a preset
	Timeout   string `json:"timeout,omitempty"`
	Delivery  string `json:"delivery,omitempty"`
	OnFailure any    `json:"on_failure,omitempty"`
	Keep      *Keep  `json:"keep,omitempty"`
}

// Worker runs jobs in this program.
type Worker struct {
	Name     string
	options  WorkerOptions
	handlers map[string]handler
	defaults map[string]TaskDefaults

	mutex     sync.Mutex
	stop      func()
	stopNow   func()
	isStopped bool
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]+|^[^A-Za-z0-9]+`)

// NewWorker returns a worker without tasks.
func NewWorker(options WorkerOptions) *Worker {
	if options.Slots == 0 {
		options.Slots = 10
	}
	if options.Grace == 0 {
		options.Grace = 25 * time.Second
	}
	if options.Name == "" {
		host, _ := os.Hostname()
		options.Name = fmt.Sprintf("%.100s-%d", notInName.ReplaceAllString("go-"+host, "-"), os.Getpid())
	}
	if options.Log == nil {
		options.Log = func(line string) { log.Printf("schedo worker %s: %s", options.Name, line) }
	}
	return &Worker{
		Name: options.Name, options: options, handlers: map[string]handler{}, defaults: map[string]TaskDefaults{},
	}
}

// Handle declares how a worker runs a task. The payload of the job is decoded as an In; what the handler returns is the
// result of the job, and an error fails the attempt. Its context ends when the attempt has to stop, and FromContext
// gives the job. Call it before Run; it panics if the task is declared twice.
func Handle[In, Out any](w *Worker, task string, run func(ctx context.Context, in In) (Out, error), defaults ...TaskDefaults) {
	if _, isKnown := w.handlers[task]; isKnown {
		panic(fmt.Sprintf("task '%s' is declared twice", task))
	}
	for _, each := range defaults {
		w.defaults[task] = each
	}
	w.handlers[task] = func(ctx context.Context, payload json.RawMessage) (any, error) {
		var in In
		if err := json.Unmarshal(payload, &in); err != nil {
			return nil, &Discard{Reason: "the payload does not fit the task: " + err.Error()}
		}
		return run(ctx, in)
	}
}

// Run runs jobs until Stop, until ctx ends, until the server asks the worker to leave, or until SIGTERM or SIGINT; a
// second signal ends it without waiting for attempts. Then the running attempts end, and their results reach the
// server. The error says that the server refuses the worker, that another process has taken its name, or that the last
// results could not be reported.
func (w *Worker) Run(ctx context.Context) error {
	attempts := newAttempts(w.handlers)
	session := newSession(newTransport(w.options.URL, w.options.Token, workTimeout), w.registration(), attempts, w.options.Log)
	leaveIfIdle := func() {
		if attempts.count() == 0 {
			session.leave()
		}
	}
	var once sync.Once
	stop := func() {
		once.Do(func() {
			session.drain()
			attempts.whenEnded(leaveIfIdle)
			leaveIfIdle()
			time.AfterFunc(w.options.Grace, attempts.release)
		})
	}
	session.onDrain = stop
	w.mutex.Lock()
	w.stop, w.stopNow = stop, attempts.release
	isStopped := w.isStopped
	w.mutex.Unlock()
	if isStopped {
		stop()
	}
	ended := make(chan struct{})
	go w.listen(ctx, ended)
	defer attempts.close()
	defer close(ended)
	return session.run()
}

// Stop lets the worker take no more jobs. Run returns when the attempts have ended, or when the grace time is over.
func (w *Worker) Stop() {
	w.mutex.Lock()
	stop := w.stop
	w.isStopped = true
	w.mutex.Unlock()
	if stop != nil {
		stop()
	}
}

// StopNow gives the running attempts back, so that other workers run them, and lets Run return.
func (w *Worker) StopNow() {
	w.Stop()
	w.mutex.Lock()
	stopNow := w.stopNow
	w.mutex.Unlock()
	if stopNow != nil {
		stopNow()
	}
}

// listen stops the worker at the end of ctx and at signals.
func (w *Worker) listen(ctx context.Context, ended <-chan struct{}) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	select {
	case <-ended:
		return
	case <-ctx.Done():
	case <-signals:
	}
	w.Stop()
	select {
	case <-ended:
	case <-signals:
		w.StopNow()
	}
}

func (w *Worker) registration() registration {
	tasks := make([]string, 0, len(w.handlers))
	for task := range w.handlers {
		tasks = append(tasks, task)
	}
	sort.Strings(tasks)
	session := make([]byte, 16)
	_, _ = rand.Read(session) // it never fails
	return registration{
		Worker: w.Name, Protocol: 1, Session: hex.EncodeToString(session), Tasks: tasks, Queues: w.options.Queues,
		Slots: w.options.Slots, Labels: w.options.Labels, Resources: w.options.Resources, Version: w.options.Version,
		SessionTimeout: w.options.SessionTimeout, TaskDefaults: w.defaults,
	}
}
