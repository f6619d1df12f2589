package schedo

import "encoding/json"

const (
	batchMessagesMax = 1_000
	batchBytesMax    = 4 << 20
	reasonBytesMax   = 500
)

// message is one entry of a list in a worker's request; text is its JSON.
type message struct {
	field string // results, progress, accept or reject
	lease string
	text  json.RawMessage
}

// outbox has the messages of a worker until the server has confirmed them. It is guarded by the session's lock.
//
// Sending a message twice is harmless, so messages that were in flight when a connection broke are sent again. A
// message that the server refuses must not hold up the others: after a refused batch the messages are sent one by one,
// and a result that is refused alone is replaced by a failure that says why.
type outbox struct {
	waiting  []*message
	inFlight map[*message]bool
	replaced map[string]bool
	singles  int // this many of the next messages are sent alone
}

func newOutbox() *outbox {
	return &outbox{inFlight: map[*message]bool{}, replaced: map[string]bool{}}
}

func (o *outbox) isEmpty() bool { return len(o.waiting)+len(o.inFlight) == 0 }

// leases returns those whose results or replies the server may not know yet.
func (o *outbox) leases() []string {
	var leases []string
	note := func(each *message) {
		if each.field != "progress" {
			leases = append(leases, each.lease)
		}
	}
	for each := range o.inFlight {
		note(each)
	}
	for _, each := range o.waiting {
		note(each)
	}
	return leases
}

func (o *outbox) add(each *message) { o.waiting = append(o.waiting, each) }

// take returns the messages of the next request; they are in flight from now on.
func (o *outbox) take() []*message {
	most, size := batchMessagesMax, 0
	if o.singles > 0 {
		most = 1
	}
	var taken []*message
	for _, each := range o.waiting[:min(most, len(o.waiting))] {
		size += len(each.text)
		if len(taken) > 0 && size > batchBytesMax {
			break
		}
		taken = append(taken, each)
		o.inFlight[each] = true
	}
	o.waiting = o.waiting[len(taken):]
	if len(taken) > 0 && o.singles > 0 {
		o.singles--
	}
	return taken
}

// confirm drops messages that the server has confirmed.
func (o *outbox) confirm(messages []*message) {
	for _, each := range messages {
		delete(o.inFlight, each)
		delete(o.replaced, each.lease)
	}
}

// putBack sends these messages again: they may not have arrived.
func (o *outbox) putBack(messages []*message) {
	for _, each := range messages {
		delete(o.inFlight, each)
	}
	o.waiting = append(append([]*message{}, messages...), o.waiting...)
}

// refuse sends these messages alone to find the bad one, or replaces it if it was alone.
func (o *outbox) refuse(messages []*message, reason string) {
	if len(messages) != 1 {
		o.singles = max(o.singles, len(messages))
		o.putBack(messages)
		return
	}
	only := messages[0]
	delete(o.inFlight, only)
	if only.field != "results" || o.replaced[only.lease] {
		return
	}
	o.replaced[only.lease] = true
	o.singles++
	detail := "the server refused the result: " + cut(reason, reasonBytesMax)
	o.putBack([]*message{resultMessage(only.lease, failed("result-refused", detail, "", false))})
}
