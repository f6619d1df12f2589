package schedo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// workTimeout is for a response, beyond the wait of the poll: together less than a session timeout.
const workTimeout = 10 * time.Second

// registration describes the worker in every request.
type registration struct {
	Worker         string                  `json:"worker"`
	Protocol       int                     `json:"protocol"`
	Session        string                  `json:"session"`
	Tasks          []string                `json:"tasks"`
	Queues         []string                `json:"queues,omitempty"`
	Slots          int                     `json:"slots"`
	Labels         map[string]any          `json:"labels,omitempty"`
	Resources      map[string]any          `json:"resources,omitempty"`
	Version        string                  `json:"version,omitempty"`
	SessionTimeout string                  `json:"session_timeout,omitempty"`
	TaskDefaults   map[string]TaskDefaults `json:"task_defaults,omitempty"`
}

type workRequest struct {
	registration
	Draining  bool              `json:"draining,omitempty"`
	Running   *[]string         `json:"running,omitempty"`
	Wait      float64           `json:"wait"`
	MaxLeases int               `json:"max_leases"`
	Offers    bool              `json:"offers,omitempty"`
	Results   []json.RawMessage `json:"results,omitempty"`
	Progress  []json.RawMessage `json:"progress,omitempty"`
	Accept    []json.RawMessage `json:"accept,omitempty"`
	Reject    []json.RawMessage `json:"reject,omitempty"`
}

type workResponse struct {
	Leases []json.RawMessage `json:"leases"`
	Stop   []struct {
		Lease  string     `json:"lease"`
		Reason StopReason `json:"reason"`
	} `json:"stop"`
	Revoked []string `json:"revoked"`
	Refused []struct {
		Lease  string `json:"lease"`
		Detail string `json:"detail"`
	} `json:"refused"`
	Heartbeat *float64 `json:"heartbeat"`
	Drain     bool     `json:"drain"`
}

func rejection(lease, reason string) *message {
	text, _ := json.Marshal(map[string]string{"lease": lease, "reason": reason})
	return &message{field: "reject", lease: lease, text: text}
}

func (s *session) exchange(ctx context.Context, request *workRequest, held time.Duration) (*workResponse, error) {
	body, err := encode(request)
	if err != nil {
		return nil, err
	}
	text, err := s.transport.send(ctx, http.MethodPost, "/v1/work", body, nil, held)
	if err != nil {
		return nil, err
	}
	response := &workResponse{}
	if err := json.Unmarshal(text, response); err != nil || response.Heartbeat == nil {
		return nil, fmt.Errorf("%w of the worker protocol: %.200q", ErrUnreachable, text)
	}
	return response, nil
}

func retryAfter(err error) time.Duration {
	refusal, busy := isBusy(err)
	switch {
	case !busy:
		return -1
	case refusal.retryAfter < 0:
		return time.Second
	}
	return refusal.retryAfter
}
