package schedo

import (
	"math/rand/v2"
	"time"
)

const (
	firstBackoff  = 25 * time.Millisecond // a standby server takes over within milliseconds
	secondBackoff = 250 * time.Millisecond
	maxBackoff    = 5 * time.Second
	maxRetryAfter = time.Minute
	maxDoublings  = 10
)

// backoff gives the waiting times after failures in a row: longer after each, and random, so that a thousand clients
// do not return together.
type backoff struct{ failures int }

func (b *backoff) noteSuccess() { b.failures = 0 }

// next returns the next wait. A retryAfter that is not negative is what the server asks for.
func (b *backoff) next(retryAfter time.Duration) time.Duration {
	b.failures++
	if retryAfter >= 0 {
		return time.Duration(float64(min(retryAfter, maxRetryAfter)) * (1 + rand.Float64()/2))
	}
	longest := firstBackoff
	if b.failures > 1 {
		longest = min(maxBackoff, secondBackoff<<min(b.failures-2, maxDoublings))
	}
	return time.Duration(rand.Float64() * float64(longest))
}
