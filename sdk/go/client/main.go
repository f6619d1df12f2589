// Command client uses the client in many ways and prints what came of it as one JSON object, for
// tests/sdk/contract_server.py.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/url"
	"os"
	"time"

	"schedo"
)

var ctx = context.Background()

type command struct {
	Command string `json:"command"`
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func codeOf(err error) string {
	var refusal *schedo.Error
	if errors.As(err, &refusal) {
		return refusal.Code
	}
	return fmt.Sprint(err)
}

func main() {
	client := schedo.NewClient(schedo.ClientOptions{})
	shell := func(line string, options schedo.JobOptions) *schedo.Job {
		return must(client.Submit(ctx, "shell", command{line}, options))
	}
	hello, failing := shell("echo hello", schedo.JobOptions{}), shell("exit 3", schedo.JobOptions{})

	told := map[string]any{}
	var completed any
	if err := client.Result(ctx, hello.ID, &completed); err != nil {
		log.Fatal(err)
	}
	told["completed"] = completed
	told["output"] = must(client.Output(ctx, hello.ID, "stdout"))

	var failed *schedo.JobFailed
	if errors.As(client.Result(ctx, failing.ID, nil), &failed) {
		told["failed"] = failed.Job.State + " " + failed.Job.Error.Type
	}
	var missing *schedo.Error
	if _, err := client.Get(ctx, "0000000000000"); errors.As(err, &missing) {
		told["not found"] = []any{missing.Status, missing.Code}
	}

	batch := must(client.SubmitMany(ctx, []schedo.JobSpec{
		{Task: "shell", Payload: command{"true"}, JobOptions: schedo.JobOptions{Delay: "1h"}},
		{Task: "not a name"},
	}))
	told["batch"] = []string{batch[0].Job.State, batch[1].Problem.Code}

	only := schedo.JobOptions{Unique: "only", Delay: "1h"}
	first, second := shell("true", only), shell("true", only)
	told["same key"] = first.ID == second.ID && second.Conflict
	told["cancelled"] = must(client.Cancel(ctx, first.ID)).State
	told["retried"] = must(client.Retry(ctx, failing.ID)).State
	told["invoked"] = must(client.Invoke(ctx, "shell", command{"true"}, schedo.InvokeOptions{})).State
	_, err := client.Invoke(ctx, "fly", nil, schedo.InvokeOptions{})
	told["no capacity"] = codeOf(err)

	put := must(client.PutSchedule(ctx, "nightly", map[string]any{
		"cron": "0 3 * * *", "task": "shell", "payload": command{"true"},
	}))
	told["schedule"] = put["cron"]
	if err := client.DeleteSchedule(ctx, "nightly"); err != nil {
		log.Fatal(err)
	}

	listed := 0
	filter := url.Values{"state": {"completed,cancelled"}, "task": {"shell"}, "limit": {"1"}}
	err = client.List(ctx, filter, func(job schedo.Job) bool {
		if job.ID == hello.ID || job.ID == first.ID {
			listed++
		}
		return true
	})
	if err != nil {
		log.Fatal(err)
	}
	told["listed"] = listed
	stats := must(client.Stats(ctx, schedo.StatsQuery{
		By: "queue", Since: time.Now().Add(-time.Hour), Per: "hour", Exact: "default",
	}))
	queue := stats.Items[0]
	told["stats"] = []any{stats.By, queue.Name, queue.Cancelled, len(queue.Points) == 1 && len(stats.Points) == 1}
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		log.Fatal(err)
	}
}
