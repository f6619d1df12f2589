package schedo

import (
	"time"
)

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
