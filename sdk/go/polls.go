package schedo

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

const (
	longestPause = time.Second
	linger       = 20 * time.Millisecond // with all slots busy a poll brings only stops, so it may wait for results to carry
	leasesMax    = 1_000
	idleFree     = 2 // this many early and empty responses in a row are normal
)

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
