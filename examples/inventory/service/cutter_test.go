package service

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// cutter is a proxy before a server that loses requests and replies.
type cutter struct {
	target    atomic.Pointer[string] // URL of the server
	transport *http.Transport

	mu     sync.Mutex
	random *rand.Rand
	fates  map[fate]int
	lost   int // replies with status 200 that were cut
}

// fate is what becomes of a request.
type fate string

const (
	passed       fate = "passed"
	cutRequest   fate = "cut before it arrived"
	hungUp       fate = "arrived, and the connection was cut at once"
	cutReply     fate = "arrived, and the reply was cut"
	cutHalfReply fate = "arrived, and half of the reply was cut"
	noServer     fate = "found no server, or one that died"
)

// draw cuts a fifth of the replies, and loses a tenth of the requests on top.
func (c *cutter) draw() fate {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch p := c.random.IntN(100); {
	case p < 5:
		return cutRequest
	case p < 10:
		return hungUp
	case p < 20:
		return cutReply
	case p < 30:
		return cutHalfReply
	}
	return passed
}

func (c *cutter) count(f fate, status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fates[f]++
	if status == http.StatusOK && f != passed {
		c.lost++
	}
}

// startCutter starts a proxy, which is stopped when the test ends.
func startCutter(t testing.TB, seed uint64, target string) (c *cutter, url string) {
	c = &cutter{transport: &http.Transport{}, random: rand.New(rand.NewPCG(seed, 0)), fates: map[fate]int{}}
	c.target.Store(&target)
	server := httptest.NewServer(c)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		c.transport.CloseIdleConnections()
	})
	return c, server.URL
}

func (c *cutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := c.draw()
	if f == cutRequest {
		c.count(f, 0)
		cut(w)
		return
	}
	ctx, hangUp := context.WithCancel(r.Context())
	defer hangUp()
	if f == hungUp {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { hangUp() }})
	}
	response, body, err := c.forward(ctx, r)
	switch {
	case f == hungUp:
		c.count(f, 0)
		cut(w)
	case err != nil:
		c.count(noServer, 0)
		cut(w)
	case f == cutReply:
		c.count(f, response.StatusCode)
		cut(w)
	default:
		c.count(f, response.StatusCode)
		pass(w, response, body, f == cutHalfReply)
	}
}

// forward sends a request on and reads the reply to its end.
func (c *cutter) forward(ctx context.Context, r *http.Request) (*http.Response, []byte, error) {
	out, err := http.NewRequestWithContext(ctx, r.Method, *c.target.Load()+r.URL.EscapedPath(), r.Body)
	if err != nil {
		return nil, nil, err
	}
	out.Header, out.ContentLength = r.Header.Clone(), r.ContentLength
	response, err := c.transport.RoundTrip(out)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response, body, err
}

// pass hands a reply on, wholly or its first half.
func pass(w http.ResponseWriter, response *http.Response, body []byte, half bool) {
	for name, values := range response.Header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(response.StatusCode)
	if !half {
		_, _ = w.Write(body)
		return
	}
	_, _ = w.Write(body[:len(body)/2])
	_ = http.NewResponseController(w).Flush()
	cut(w)
}

// cut closes the client's connection.
func cut(http.ResponseWriter) { panic(http.ErrAbortHandler) }
