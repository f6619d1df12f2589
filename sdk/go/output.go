package schedo

import (
	"slices"
	"sync"
)

const outputHalf = 512 << 10

// output keeps a text from its beginning and to its end; of a long one the middle is missing.
type output struct {
	mutex sync.Mutex
	head  []byte
	tail  []byte
	total int
}

func (o *output) write(text string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.total += len(text)
	room := min(outputHalf-len(o.head), len(text))
	o.head = append(o.head, text[:room]...)
	o.tail = append(o.tail, text[room:]...)
	if len(o.tail) > 2*outputHalf { // not at every write, so that a long output is not copied again and again
		o.tail = append([]byte(nil), o.tail[len(o.tail)-outputHalf:]...)
	}
}

// render returns the entry for a result; nil if nothing was written. It is Base64, because a text can take six bytes for
// a byte of the output, and has no U+0000.
func (o *output) render() []map[string]any {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.total == 0 {
		return nil
	}
	tail := o.tail[max(0, len(o.tail)-outputHalf):]
	return []map[string]any{{"stream": "stdout", "base64": slices.Concat(o.head, tail), "total_bytes": o.total}}
}
