package schedo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

const (
	heldMax        = time.Minute // one request waits so long; a longer wait takes several
	defaultRetries = 5
	defaultWait    = 30 * time.Second
	waitPause      = 500 * time.Millisecond // a server that stops ends each wait at once
)

// ClientOptions say where the server is. The zero value of each field is its default.
type ClientOptions struct {
	// URL and Token are by default SCHEDO_URL, or http://127.0.0.1:8080, and SCHEDO_TOKEN from the environment.
	URL   string
	Token string
	// Retries is how often a request is repeated that got no response, or 429 or 503; by default 5. Negative: never.
	Retries int
	// Timeout is how long a response may take, beyond the time that the request asks the server to wait; 30 s.
	Timeout time.Duration
}

// Client is a client of a schedo server; it is safe for concurrent use. A request that fails without a response, or
// because the server is busy or restarts, is repeated where that is safe: submits carry an Idempotency-Key, so a
// repeated one makes no second job.
type Client struct {
	transport *transport
	retries   int
}

// NewClient returns a client.
func NewClient(options ClientOptions) *Client {
	if options.Retries == 0 {
		options.Retries = defaultRetries
	}
	return &Client{newTransport(options.URL, options.Token, options.Timeout), options.Retries}
}

// Submit submits a job. When it returns without an error, the job is on the server's disk.
func (c *Client) Submit(ctx context.Context, task string, payload any, options JobOptions) (*Job, error) {
	job := &Job{}
	spec := JobSpec{Task: task, Payload: payload, JobOptions: options}
	return job, c.call(ctx, http.MethodPost, "/v1/jobs", spec, idempotencyKey(), 0, job)
}

// SubmitMany submits up to 1,000 jobs in one commit. At the position of a job that is refused is its problem.
func (c *Client) SubmitMany(ctx context.Context, jobs []JobSpec) ([]BatchItem, error) {
	var batch struct {
		Items []BatchItem `json:"items"`
	}
	err := c.call(ctx, http.MethodPost, "/v1/jobs:batch", jobs, idempotencyKey(), 0, &batch)
	return batch.Items, err
}

// Get reads a job.
func (c *Client) Get(ctx context.Context, id string) (*Job, error) {
	job := &Job{}
	return job, c.call(ctx, http.MethodGet, jobPath(id, ""), nil, nil, 0, job)
}

// Wait waits until the job has ended or ctx has, and returns the job.
func (c *Client) Wait(ctx context.Context, id string) (*Job, error) {
	path := jobPath(id, fmt.Sprintf("/wait?timeout=%gs", heldMax.Seconds()))
	for {
		job, began := &Job{}, time.Now()
		if err := c.call(ctx, http.MethodGet, path, nil, nil, heldMax, job); err != nil || job.HasEnded() {
			return job, err
		}
		if time.Since(began) > heldMax/2 {
			continue
		}
		select {
		case <-ctx.Done():
			return job, ctx.Err()
		case <-time.After(waitPause):
		}
	}
}

// Result waits for the job and decodes its result into out. The error is a *JobFailed if the job did not complete.
func (c *Client) Result(ctx context.Context, id string, out any) error {
	job, err := c.Wait(ctx, id)
	switch {
	case err != nil:
		return err
	case job.State != "completed":
		return &JobFailed{*job}
	case job.Result == nil || out == nil:
		return nil
	}
	return json.Unmarshal(job.Result, out)
}

// Cancel cancels a waiting job, or asks a running one to stop.
func (c *Client) Cancel(ctx context.Context, id string) (*Job, error) {
	return c.act(ctx, id, ":cancel")
}

// Retry runs a failed, cancelled or expired job again.
func (c *Client) Retry(ctx context.Context, id string) (*Job, error) { return c.act(ctx, id, ":retry") }

// RunNow makes a job that waits for its time due now.
func (c *Client) RunNow(ctx context.Context, id string) (*Job, error) { return c.act(ctx, id, ":run") }

func (c *Client) act(ctx context.Context, id, action string) (*Job, error) {
	job := &Job{}
	return job, c.call(ctx, http.MethodPost, jobPath(id, action), nil, nil, 0, job)
}

// List calls each with the jobs that match, newest first, until it returns false. The filter has the parameters of
// GET /v1/jobs, such as {"state": {"failed"}}.
func (c *Client) List(ctx context.Context, filter url.Values, each func(Job) bool) error {
	query := url.Values{}
	for name, values := range filter {
		query[name] = values
	}
	for {
		var page struct {
			Items      []Job  `json:"items"`
			NextCursor string `json:"next_cursor"`
		}
		if err := c.call(ctx, http.MethodGet, "/v1/jobs?"+query.Encode(), nil, nil, 0, &page); err != nil {
			return err
		}
		for _, job := range page.Items {
			if !each(job) {
				return nil
			}
		}
		if page.NextCursor == "" {
			return nil
		}
		query.Set("cursor", page.NextCursor)
	}
}

// Output returns what one of the job's streams had: stdout, stderr or body; the latest attempt's.
func (c *Client) Output(ctx context.Context, id, stream string) (string, error) {
	text, err := c.send(ctx, http.MethodGet, jobPath(id, "/output?stream="+url.QueryEscape(stream)), nil, nil, 0)
	return string(text), err
}

// Invoke runs a job on a worker right now and returns it as it is after Wait; it is not queued and not repeated. The
// error has the code no-capacity if no worker has room, and invocation-failed if the job failed.
func (c *Client) Invoke(ctx context.Context, task string, payload any, options InvokeOptions) (*Job, error) {
	wait := options.Wait
	if wait == 0 {
		wait = defaultWait
	}
	wait = max(wait, 0)
	body, err := encode(struct {
		Task    string  `json:"task"`
		Payload any     `json:"payload,omitempty"`
		Wait    float64 `json:"wait"`
		InvokeOptions
	}{task, payload, wait.Seconds(), options})
	if err != nil {
		return nil, err
	}
	text, err := c.transport.send(ctx, http.MethodPost, "/v1/invoke", body, nil, wait)
	if err != nil {
		return nil, err
	}
	job := &Job{}
	return job, json.Unmarshal(text, job)
}

// PutSchedule creates or replaces a schedule; docs/api.md has its fields.
func (c *Client) PutSchedule(ctx context.Context, name string, schedule map[string]any) (map[string]any, error) {
	var put map[string]any
	return put, c.call(ctx, http.MethodPut, "/v1/schedules/"+url.PathEscape(name), schedule, nil, 0, &put)
}

// DeleteSchedule deletes a schedule; its jobs stay.
func (c *Client) DeleteSchedule(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, "/v1/schedules/"+url.PathEscape(name), nil, nil, 0, nil)
}

// Stats returns what ended by task, queue or schedule: counts, run times and lateness.
func (c *Client) Stats(ctx context.Context, which StatsQuery) (*Stats, error) {
	stats := &Stats{}
	return stats, c.call(ctx, http.MethodGet, "/v1/stats?"+which.encode(), nil, nil, 0, stats)
}

// Do sends any request of the HTTP API (docs/api.md) that may be carried out twice, and decodes the response into out
// unless it is nil. It is repeated if it gets no response, or if the server is busy or restarts.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	return c.call(ctx, method, path, in, nil, 0, out)
}

func (c *Client) call(ctx context.Context, method, path string, in any, header http.Header, held time.Duration, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = encode(in); err != nil {
			return err
		}
	}
	text, err := c.send(ctx, method, path, body, header, held)
	if err != nil || out == nil || len(text) == 0 {
		return err
	}
	return json.Unmarshal(text, out)
}

func (c *Client) send(ctx context.Context, method, path string, body []byte, header http.Header, held time.Duration) ([]byte, error) {
	pauses := backoff{}
	for left := c.retries; ; left-- {
		text, err := c.transport.send(ctx, method, path, body, header, held)
		if err == nil || left <= 0 || !isPassing(err) || ctx.Err() != nil {
			return text, err
		}
		var refusal *Error
		wait := time.Duration(-1)
		if errors.As(err, &refusal) {
			wait = refusal.retryAfter
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pauses.next(wait)):
		}
	}
}

// isPassing reports whether the same request may succeed later: it has not been carried out, or a repetition changes
// nothing.
func isPassing(err error) bool {
	if refusal, busy := isBusy(err); refusal != nil {
		return refusal.Code == "idempotency-in-progress" || (busy && refusal.Code != "no-capacity")
	}
	return errors.Is(err, ErrUnreachable)
}

func jobPath(id, rest string) string { return "/v1/jobs/" + url.PathEscape(id) + rest }

func idempotencyKey() http.Header {
	key := make([]byte, 16)
	_, _ = rand.Read(key) // it never fails
	return http.Header{"Idempotency-Key": {hex.EncodeToString(key)}}
}
