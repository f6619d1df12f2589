package schedo

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

const (
	firstHeartbeat = 10 * time.Second
	leaveTime      = 5 * time.Second // for the last results to get through
)

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
