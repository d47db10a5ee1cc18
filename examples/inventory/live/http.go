package live

import (
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"
)

//go:embed page.html
var pageHTML []byte

var errNotLoopback = errors.New("the page stops processes for whoever asks, so it is served on this machine's own addresses only: -page 127.0.0.1:8088")

func listenLoopback(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w (choose another with -page, such as -page 127.0.0.1:0 for a free port)", err)
	}
	if !listener.Addr().(*net.TCPAddr).IP.IsLoopback() {
		return nil, errors.Join(errNotLoopback, listener.Close())
	}
	return listener, nil
}

// serve serves the page until ctx ends, and all the while has the workers sell.
func (s *shop) serve(ctx context.Context, listener net.Listener, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler:           s.handler(listener.Addr().(*net.TCPAddr)),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // ends the streams of events
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() {
		failed <- server.Serve(listener)
		cancel()
	}()
	err := s.run(ctx)
	cancel()
	_ = server.Close() // nobody waits for what is cut off here
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

func (s *shop) handler(addr *net.TCPAddr) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", servePage)
	mux.HandleFunc("GET /events", s.serveEvents)
	mux.HandleFunc("POST /do", s.serveDo)
	sameOrigin := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		// A name that someone else made point here is not this page's.
		if r.Host != addr.String() && r.Host != fmt.Sprintf("localhost:%d", addr.Port) {
			http.Error(w, "this page is served to http://"+addr.String()+" only", http.StatusMisdirectedRequest)
			return
		}
		sameOrigin.ServeHTTP(w, r)
	})
}

func servePage(w http.ResponseWriter, _ *http.Request) {
	nonce := rand.Text()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'nonce-"+nonce+"'; style-src 'nonce-"+nonce+
		"'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	_, _ = w.Write(bytes.ReplaceAll(pageHTML, []byte("NONCE"), []byte(nonce)))
}

// serveEvents streams entries and states. A browser whose connection broke says which entry it got last.
func (s *shop) serveEvents(w http.ResponseWriter, r *http.Request) {
	stream := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	n, shown := s.feed.seen(r.Header.Get("Last-Event-ID")), []byte(nil)
	for {
		entries, now, state, changed := s.feed.after(n)
		var b bytes.Buffer
		if !bytes.Equal(state, shown) {
			fmt.Fprintf(&b, "event: state\ndata: %s\n\n", state)
		}
		for _, e := range entries {
			data, _ := json.Marshal(e)
			fmt.Fprintf(&b, "id: %s\nevent: entry\ndata: %s\n\n", e.ID, data)
		}
		n, shown = now, state
		_ = stream.SetWriteDeadline(time.Now().Add(10 * time.Second))
		if _, err := w.Write(b.Bytes()); err != nil || stream.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// serveDo does what a button asks for.
func (s *shop) serveDo(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") { // which no form can send
		http.Error(w, "send Content-Type: application/json", http.StatusUnsupportedMediaType)
		return
	}
	var d do
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&d); err != nil {
		http.Error(w, "the body has to be {\"do\": …}", http.StatusBadRequest)
		return
	}
	if err := s.ask(r.Context(), d); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
