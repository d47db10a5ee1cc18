package workload

import (
	"math/rand/v2"
	"time"
)

// Between is a random time of whole milliseconds.
func Between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64((most-least)/time.Millisecond)))*time.Millisecond
}

// Pick returns one of several.
func Pick[T any](random *rand.Rand, of ...T) T { return of[random.IntN(len(of))] }
