package netfault

import (
	"time"

	"github.com/Shopify/toxiproxy/v2/toxics"
)

// valve is the one toxic of a direction, on every connection from its beginning
// to its end. It does as the rules say, and isn't taken away to revert: toxiproxy
// gives a toxic's last bytes up if their reader takes five seconds to read on.
type valve struct {
	rules     *rules
	direction Direction
}

// GetBufferSize is how many chunks may wait, of 32 KiB at most each: otherwise a
// delay would bound the throughput too.
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
