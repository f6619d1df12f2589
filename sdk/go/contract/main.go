// Command contract is a worker that a test leads: it reads commands from stdin and writes events to stdout, a JSON
// object on each line. tests/sdk/process_worker.py is the other side.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"schedo"
)

type command struct {
	Do     string
	Lease  string
	Value  json.RawMessage
	Update struct {
		Percent *float64
		Message string
		Log     string
	}
}

type end struct {
	value   any
	err     error
	isAbort bool
}

type call struct {
	job *schedo.CurrentJob
	end chan end
}

type withoutJSON struct{}

func (withoutJSON) MarshalJSON() ([]byte, error) { panic("this has no JSON") }

var (
	mutex   sync.Mutex
	running = map[string]call{}
)

func tell(event map[string]any) {
	text, _ := json.Marshal(event)
	mutex.Lock()
	defer mutex.Unlock()
	fmt.Println(string(text))
}

func work(ctx context.Context, payload any) (any, error) {
	job := schedo.FromContext(ctx)
	lease := job.Lease.Lease
	this := call{job, make(chan end, 1)}
	mutex.Lock()
	running[lease] = this
	mutex.Unlock()
	tell(map[string]any{"event": "called", "lease": lease, "payload": payload})
	select {
	case ended := <-this.end:
		if ended.isAbort {
			runtime.Goexit()
		}
		return ended.value, ended.err
	case <-ctx.Done():
		var reason schedo.StopReason
		errors.As(context.Cause(ctx), &reason)
		tell(map[string]any{"event": "stopped", "lease": lease, "reason": reason})
		return nil, ctx.Err()
	}
}

func (c command) text() (text string) {
	_ = json.Unmarshal(c.Value, &text)
	return text
}

func obey(worker *schedo.Worker, given command) {
	mutex.Lock()
	this := running[given.Lease]
	mutex.Unlock()
	switch given.Do {
	case "sync":
		time.Sleep(5 * time.Millisecond) // for goroutines that can run
		tell(map[string]any{"event": "synced"})
	case "stop":
		worker.Stop()
	case "stop_now":
		worker.StopNow()
	case "progress":
		if given.Update.Log != "" {
			this.job.Log(given.Update.Log)
		} else {
			this.job.Progress(schedo.Progress{Percent: given.Update.Percent, Message: given.Update.Message})
		}
	case "complete":
		this.end <- end{value: given.Value}
	case "fail":
		this.end <- end{err: errors.New(given.text())}
	case "discard":
		this.end <- end{err: &schedo.Discard{Reason: given.text()}}
	case "goexit":
		this.end <- end{isAbort: true}
	case "panic_as_json":
		this.end <- end{value: withoutJSON{}}
	case "snooze":
		this.end <- end{err: &schedo.Snooze{Delay: string(given.Value)}}
	}
}

func main() {
	worker := schedo.NewWorker(schedo.WorkerOptions{Name: "w1", Slots: 2, Grace: time.Minute})
	schedo.Handle(worker, "work", work)
	go func() {
		ended := map[string]any{"event": "ended", "error": ""}
		if err := worker.Run(context.Background()); err != nil {
			ended["error"] = err.Error()
		}
		time.Sleep(5 * time.Millisecond) // for handlers that were stopped
		tell(ended)
	}()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var given command
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			panic(err)
		}
		obey(worker, given)
	}
}
