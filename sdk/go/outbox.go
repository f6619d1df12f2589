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
	news  update // of progress
}

// outbox has the messages of a worker until the server has confirmed them. It is guarded by the session's lock.
//
// Sending a message twice is harmless, so messages that were in flight when a connection broke are sent again. A
// message that the server refuses must not hold up the others: after a refused batch the messages are sent one by one,
// and a result that is refused alone is replaced by a failure that says why. Progress that waits is merged: there is at
// most one message with it for each attempt, however long the server is away.
type outbox struct {
	waiting  []*message
	progress map[string]update // waits as well, by lease
	inFlight map[*message]bool
	replaced map[string]bool
	singles  int // this many of the next messages are sent alone
}

func newOutbox() *outbox {
	return &outbox{progress: map[string]update{}, inFlight: map[*message]bool{}, replaced: map[string]bool{}}
}

func (o *outbox) isEmpty() bool { return !o.hasMessages() && len(o.inFlight) == 0 }

func (o *outbox) hasMessages() bool { return len(o.waiting)+len(o.progress) > 0 }

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

func (o *outbox) addProgress(news update) {
	o.progress[news.Lease] = o.progress[news.Lease].then(news)
}

// take returns the messages of the next request; they are in flight from now on.
func (o *outbox) take() []*message {
	most, size := batchMessagesMax, 0
	if o.singles > 0 {
		most = 1
	}
	var taken []*message
	for len(taken) < most {
		next := o.next()
		if next == nil {
			break
		}
		if size += len(next.text); len(taken) > 0 && size > batchBytesMax {
			o.putBack([]*message{next})
			break
		}
		taken = append(taken, next)
		o.inFlight[next] = true
	}
	if len(taken) > 0 && o.singles > 0 {
		o.singles--
	}
	return taken
}

// next takes the message that has waited longest; nil if none waits. Progress comes last.
func (o *outbox) next() *message {
	if len(o.waiting) > 0 {
		first := o.waiting[0]
		o.waiting = o.waiting[1:]
		return first
	}
	for lease, news := range o.progress {
		delete(o.progress, lease)
		if text, err := encode(news); err == nil { // a percent that is not a number has no JSON
			return &message{field: "progress", lease: lease, text: text, news: news}
		}
	}
	return nil
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
	var back []*message
	for _, each := range messages {
		delete(o.inFlight, each)
		if each.field == "progress" {
			o.progress[each.lease] = each.news.then(o.progress[each.lease])
		} else {
			back = append(back, each)
		}
	}
	o.waiting = append(back, o.waiting...)
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
