package schedo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	firstHeartbeat = 10 * time.Second
	longestPause   = time.Second
	linger         = 20 * time.Millisecond // with all slots busy a poll brings only stops, so it may wait for results to carry
	leasesMax      = 1_000
	idleFree       = 2                // this many early and empty responses in a row are normal
	workTimeout    = 10 * time.Second // for a response, beyond the wait of the poll: together less than a session timeout
	leaveTime      = 5 * time.Second  // for the last results to get through
)

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

// session is one run of a worker (docs/protocol.md): one open poll, and at most one report in flight beside it.
//
// The poll lists the running attempts and brings leases and stops. A result that is ready while it is open goes to the
// server at once, in a report. The server takes `running` as the truth: so it is sent only in a poll, when no other
// request can bring leases, and lists every attempt that the server may have outstanding. After a lost connection a
// poll comes before any report, because the server may have been restarted.
type session struct {
	transport    *transport
	registration registration
	attempts     *attempts
	onDrain      func()
	log          func(string)
	wake         chan struct{}   // ends a pause
	life         context.Context // of every request
	giveUp       func()          // ends it, when the last results have had their time
	leaving      chan struct{}   // closed by leave

	pollBackoff   backoff // of the goroutine that polls, like the next three
	idleResponses int
	hasSpoken     bool   // the server has accepted this worker
	logged        string // why the last poll failed; empty if it got a response

	mutex         sync.Mutex
	outbox        *outbox
	offers        map[string]Lease // accepted, not confirmed yet
	heartbeat     time.Duration
	interrupt     context.CancelFunc // of the open poll; nil if none is open
	isPolling     bool               // a poll is open after one that got a response
	isReporting   bool
	reported      chan struct{} // closed when no report is in flight
	reportBackoff backoff
	isInContact   bool // the last poll got a response
	isDraining    bool
	isLeaving     bool
}

func newSession(transport *transport, registration registration, attempts *attempts, log func(string)) *session {
	s := &session{
		transport: transport, registration: registration, attempts: attempts, log: log,
		wake: make(chan struct{}, 1), outbox: newOutbox(), offers: map[string]Lease{}, heartbeat: firstHeartbeat,
		reported: make(chan struct{}), leaving: make(chan struct{}),
	}
	close(s.reported)
	s.life, s.giveUp = context.WithCancel(context.Background())
	attempts.send, attempts.sendProgress = s.send, s.sendProgress
	return s
}

// run polls and reports until leave, and until the outbox is empty then. It returns an error if another process has
// the worker's name, if the server refused the first request, or if the last results could not be reported.
func (s *session) run() error {
	defer s.giveUp()
	for {
		s.mutex.Lock()
		isLast, reported := s.isLeaving, s.reported
		s.mutex.Unlock()
		if isLast {
			<-reported
		} else {
			s.awaitResults()
		}
		hasResponse, err := s.poll()
		if err != nil {
			return err
		}
		s.mutex.Lock()
		isDone := isLast && hasResponse && s.outbox.isEmpty()
		s.mutex.Unlock()
		if isDone {
			return nil
		}
		if s.life.Err() != nil {
			return s.unreported()
		}
	}
}

func (s *session) unreported() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	what := "its end"
	switch count := len(s.outbox.leases()); count {
	case 0:
	case 1:
		what = "1 result"
	default:
		what = fmt.Sprint(count, " results")
	}
	return fmt.Errorf("%w: the worker could not report %s to %s", ErrUnreachable, what, s.transport.url)
}

// drain takes no new work from now on.
func (s *session) drain() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.isDraining = true
	s.interruptPoll()
}

// leave lets run return when the outbox is empty, or when leaveTime is over; no attempt runs any more.
func (s *session) leave() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.isLeaving {
		close(s.leaving)
		time.AfterFunc(leaveTime, s.giveUp)
	}
	s.isDraining, s.isLeaving = true, true
	s.interruptPoll()
}

func (s *session) interruptPoll() {
	if s.interrupt != nil {
		s.interrupt()
	}
	s.signal()
}

func (s *session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// send puts a message into the outbox.
func (s *session) send(each *message) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.put(each)
}

// put is send for a caller that has the lock.
func (s *session) put(each *message) {
	s.outbox.add(each)
	s.signal()
	s.report()
}

// sendProgress puts progress into the outbox.
func (s *session) sendProgress(news update) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.outbox.addProgress(news)
	s.signal()
	s.report()
}

// pause waits, or until isDone; the caller has no lock.
func (s *session) pause(longest time.Duration, isDone func() bool) {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	for {
		s.mutex.Lock()
		done := isDone()
		s.mutex.Unlock()
		if done {
			return
		}
		select {
		case <-timer.C:
			return
		case <-s.life.Done():
			return
		case <-s.wake:
		}
	}
}

func (s *session) hasMessages() bool { return s.outbox.hasMessages() }

// awaitResults gives attempts that end at once the time to have their results in the next poll.
func (s *session) awaitResults() {
	running := s.attempts.count()
	if running == 0 {
		return
	}
	longest := time.Millisecond
	if running >= s.registration.Slots {
		longest = linger
	}
	s.pause(longest, s.hasMessages)
}

// poll sends a poll with the messages of the outbox; it returns whether it got a response.
func (s *session) poll() (bool, error) {
	ctx, cancel := context.WithCancel(s.life)
	defer cancel()
	s.mutex.Lock()
	messages := s.outbox.take()
	request := s.makePoll(messages)
	s.interrupt, s.isPolling = cancel, s.isInContact
	isDraining, wait := s.isDraining, time.Duration(request.Wait*float64(time.Second))
	s.report() // what is ready while the poll is open need not wait for it
	s.mutex.Unlock()

	began := time.Now()
	response, err := s.exchange(ctx, request, wait)
	s.mutex.Lock()
	isInterrupted := ctx.Err() != nil
	s.interrupt, s.isPolling = nil, false
	if err == nil {
		s.isInContact = true
	}
	s.mutex.Unlock()
	if err != nil {
		return false, s.pollFailed(messages, err, isInterrupted)
	}
	s.hasSpoken = true
	s.pollBackoff.noteSuccess()
	if s.logged != "" {
		s.logged = ""
		s.log("the server responds again")
	}
	isNews := s.apply(messages, response)
	isIdle := !isNews && wait > 0 && time.Since(began) < wait/2
	s.pauseAfter(isNews, isIdle, isDraining)
	return true, nil
}

// makePoll returns a poll with these messages. The attempt of an accepted offer starts with the response, so the
// server must not hold such a poll open, nor the first one after a lost connection.
func (s *session) makePoll(messages []*message) *workRequest {
	ended := map[string]bool{}
	isUrgent := !s.isInContact || s.isDraining
	for _, each := range messages {
		ended[each.lease] = ended[each.lease] || each.field == "results" || each.field == "reject"
		isUrgent = isUrgent || each.field == "accept"
	}
	running := []string{}
	list := func(leases ...string) {
		for _, lease := range leases {
			if !ended[lease] {
				ended[lease] = true // listed once
				running = append(running, lease)
			}
		}
	}
	list(s.attempts.leases()...)
	for lease := range s.offers {
		list(lease)
	}
	list(s.outbox.leases()...)
	request := s.makeRequest(messages)
	request.Running, request.Offers = &running, true
	if !isUrgent {
		request.Wait = s.heartbeat.Seconds()
	}
	if !s.isDraining { // all slots: some may become free while the poll is open
		request.MaxLeases = min(s.registration.Slots, leasesMax)
	}
	return request
}

func (s *session) makeRequest(messages []*message) *workRequest {
	request := &workRequest{registration: s.registration, Draining: s.isDraining}
	lists := map[string]*[]json.RawMessage{
		"results": &request.Results, "progress": &request.Progress, "accept": &request.Accept, "reject": &request.Reject,
	}
	for _, each := range messages {
		*lists[each.field] = append(*lists[each.field], each.text)
	}
	return request
}

func (s *session) pollFailed(messages []*message, err error, isInterrupted bool) error {
	s.takeBack(messages, err)
	if isInterrupted || (isUnacceptable(err) && len(messages) > 0) {
		return nil
	}
	s.mutex.Lock()
	s.isInContact = false
	wasLeaving := s.isLeaving
	s.mutex.Unlock()
	var refusal *Error
	if errors.As(err, &refusal) && s.isFatal(refusal) {
		return err
	}
	if reason := err.Error(); reason != s.logged {
		s.logged = reason
		s.log(reason + "; retrying")
	}
	s.pause(s.pollBackoff.next(retryAfter(err)), func() bool { return s.isLeaving && !wasLeaving })
	return nil
}

// isFatal reports whether trying again cannot help: another process has the name, or no request has succeeded.
func (s *session) isFatal(refusal *Error) bool {
	_, busy := isBusy(refusal)
	return refusal.Status == http.StatusConflict || (!s.hasSpoken && refusal.Status < 500 && !busy)
}

// pauseAfter waits before the next poll: a draining worker sends one a second, and a server that responds early again
// and again without work must not be polled in a loop.
func (s *session) pauseAfter(isNews, isIdle, isDraining bool) {
	if s.idleResponses++; !isIdle {
		s.idleResponses = 0
	}
	longest := time.Duration(0)
	if doublings := s.idleResponses - idleFree; doublings > 0 {
		longest = min(longestPause, 20*time.Millisecond<<min(doublings, 10))
	}
	if isDraining && !isNews {
		longest = longestPause
	}
	if longest > 0 {
		s.pause(longest, func() bool { return s.hasMessages() || s.isLeaving })
	}
}

// report sends a report, if a poll is open, there is something to say and no other report is in flight. The caller has
// the lock.
func (s *session) report() {
	if !s.isPolling || s.isReporting || s.isLeaving || !s.hasMessages() {
		return
	}
	messages := s.outbox.take()
	request := s.makeRequest(messages)
	s.isReporting, s.reported = true, make(chan struct{})
	go s.sendReport(request, messages)
}

func (s *session) sendReport(request *workRequest, messages []*message) {
	response, err := s.exchange(s.life, request, 0)
	if err == nil {
		s.apply(messages, response)
	} else {
		s.takeBack(messages, err)
	}
	refusal, busy := isBusy(err)
	if busy {
		s.mutex.Lock()
		wait := s.reportBackoff.next(retryAfter(refusal))
		s.mutex.Unlock()
		select {
		case <-time.After(wait):
		case <-s.leaving: // the last poll brings the results
		}
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch {
	case err == nil:
		s.reportBackoff.noteSuccess()
	case !busy && !isUnacceptable(err):
		// The next request is a poll with `running`: the server may be a new one.
		s.isInContact, s.isPolling = false, false
		s.interruptPoll()
	}
	s.isReporting = false
	close(s.reported)
	s.report()
}

func (s *session) takeBack(messages []*message, err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !isUnacceptable(err) {
		s.outbox.putBack(messages)
		return
	}
	s.log("the server refused a message: " + err.Error())
	s.outbox.refuse(messages, err.Error())
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

// apply applies the response; it returns whether it or its request had any news.
func (s *session) apply(messages []*message, response *workResponse) bool {
	isNews := len(messages) > 0
	s.mutex.Lock()
	s.outbox.confirm(messages)
	seconds := min(max(*response.Heartbeat, 0.1), 60)
	s.heartbeat = time.Duration(seconds * float64(time.Second))
	gone := map[string]bool{}
	for _, lease := range response.Revoked {
		gone[lease] = true
	}
	for _, refused := range response.Refused {
		s.log("lease " + refused.Lease + ": " + refused.Detail)
		gone[refused.Lease] = true
	}
	for _, each := range messages {
		if offer, isOffer := s.offers[each.lease]; isOffer && each.field == "accept" {
			delete(s.offers, each.lease)
			if !gone[each.lease] {
				s.start(offer)
			}
		}
	}
	s.mutex.Unlock()
	for _, text := range response.Leases {
		isNews = s.receive(text) || isNews
	}
	for _, stop := range response.Stop {
		isNews = s.attempts.stop(stop.Lease, stop.Reason) || isNews
	}
	for _, lease := range response.Revoked {
		isNews = s.attempts.abandon(lease, Revoked) || isNews
	}
	if response.Drain {
		s.onDrain()
	}
	return isNews
}

// start runs the attempt, or gives it back if the worker drains by now. The caller has the lock, so that every poll
// lists the attempt and leave comes before it or after its end.
func (s *session) start(lease Lease) bool {
	if !s.isDraining {
		return s.attempts.start(lease)
	}
	s.put(resultMessage(lease.Lease, result{"outcome": "released"}))
	return true
}

func (s *session) receive(text json.RawMessage) bool {
	var lease Lease
	if err := json.Unmarshal(text, &lease); err != nil || !leaseForm.MatchString(lease.Lease) {
		s.log(fmt.Sprintf("ignored a lease that cannot be read: %.500s", text))
		return false
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !lease.Offer {
		return s.start(lease)
	}
	_, isKnown := s.offers[lease.Lease]
	switch {
	case isKnown:
		return false
	case s.isDraining:
		s.put(rejection(lease.Lease, "draining"))
	case s.registration.Slots-s.attempts.count() <= len(s.offers):
		s.put(rejection(lease.Lease, "no free slot"))
	default:
		s.offers[lease.Lease] = lease
		text, _ := json.Marshal(lease.Lease)
		s.put(&message{field: "accept", lease: lease.Lease, text: text})
	}
	return true
}

func rejection(lease, reason string) *message {
	text, _ := json.Marshal(map[string]string{"lease": lease, "reason": reason})
	return &message{field: "reject", lease: lease, text: text}
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
