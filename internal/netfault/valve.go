package netfault

import (
	"time"

	"github.com/Shopify/toxiproxy/v2/toxics"
)

// valve is the only toxic of a direction, on every connection from its beginning to its end.
// It follows the rules. It is never removed to revert a fault: toxiproxy drops the last bytes
// of a removed toxic if their reader pauses for five seconds.
type valve struct {
	rules     *rules
	direction Direction
}

// GetBufferSize is how many chunks of at most 32 KiB may wait: with few, a delay would limit
// the throughput too.
func (*valve) GetBufferSize() int { return 1024 }

// Pipe moves chunks until the sender has ended the connection.
func (v *valve) Pipe(stub *toxics.ToxicStub) {
	for chunk := range stub.Input {
		v.rules.pass(v.direction, chunk.Timestamp)
		stub.Output <- chunk
	}
	v.rules.pass(v.direction, time.Now())
	stub.Close()
}
