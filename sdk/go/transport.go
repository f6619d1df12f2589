package schedo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	responseTimeout  = 30 * time.Second
	responseBytesMax = 64 << 20
)

// transport sends single requests to one server.
type transport struct {
	url     string
	token   string
	timeout time.Duration
	http    *http.Client
}

func newTransport(url, token string, timeout time.Duration) *transport {
	if url == "" {
		url = os.Getenv("SCHEDO_URL")
	}
	if url == "" {
		url = "http://127.0.0.1:8080"
	}
	if token == "" {
		token = os.Getenv("SCHEDO_TOKEN")
	}
	if timeout == 0 {
		timeout = responseTimeout
	}
	return &transport{strings.TrimRight(url, "/"), token, timeout, &http.Client{}}
}

// send sends a request and returns the body of its response. The error is an *Error if the server refuses the
// request, and wraps ErrUnreachable if there is no response. held is how long the server may hold the request open.
func (t *transport) send(ctx context.Context, method, path string, body []byte, header http.Header, held time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout+held)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, t.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		request.Header[name] = values
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if t.token != "" {
		request.Header.Set("Authorization", "Bearer "+t.token)
	}
	response, err := t.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, responseBytesMax))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if response.StatusCode >= 400 {
		return nil, refusal(response, text)
	}
	return text, nil
}

// encode returns the JSON of a value for a body, which has a limit: json.Marshal writes each <, > and & as six bytes.
func encode(value any) (json.RawMessage, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

func refusal(response *http.Response, text []byte) *Error {
	refused := &Error{}
	// Something between the client and the server may have answered; then the text is not JSON.
	if json.Unmarshal(text, refused) != nil || refused.Code == "" {
		refused = &Error{Code: fmt.Sprint("http-", response.StatusCode), Detail: response.Status}
	}
	refused.Status, refused.retryAfter = response.StatusCode, -1
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
		refused.retryAfter = time.Duration(seconds) * time.Second
	}
	return refused
}
