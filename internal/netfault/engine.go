package netfault

import (
	"fmt"
	"strings"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

const valveType = "fencekit_valve"

// engine moves the bytes of connections through valves. It is a proxy of toxiproxy that is
// never started: a started one doesn't give access to its sockets, which resets need.
type engine struct{ proxy *toxiproxy.Proxy }

// silent is a toxiproxy without a log, an API or metrics.
var silent = toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())

var streams = [2]stream.Direction{ToServer: stream.Upstream, ToClient: stream.Downstream}

func newEngine(r *rules) (*engine, error) {
	toxics.Register(valveType, new(valve))
	e := &engine{toxiproxy.NewProxy(silent, "netfault", "", "")}
	for d, s := range streams {
		added, err := e.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"type": %q, "stream": %q}`, valveType, s)))
		if err != nil {
			return nil, fmt.Errorf("netfault: %w", err)
		}
		v := added.Toxic.(*valve)
		v.rules, v.direction = r, Direction(d)
	}
	return e, nil
}

// carry moves bytes through a pipe until it ends, and closes it then.
func (e *engine) carry(p *pipe) {
	name := fmt.Sprint(p.from.RemoteAddr(), p.to.RemoteAddr())
	e.proxy.Toxics.StartLink(silent, name, p, p, streams[p.direction])
}
