package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardhttp"
)

// problem is an answer of this service's own (RFC 9457). What guard returns is a problem of guardhttp's.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	*shortage
	Away []string `json:"away,omitempty"` // what can't be used
}

type shortage struct {
	SKU       string `json:"sku"`
	Qty       int    `json:"qty"`
	Available int    `json:"available"`
}

func newProblem(status int, name, title, detail string) *problem {
	return &problem{Type: "urn:fencekit:inventory:" + name, Title: title, Status: status, Detail: detail}
}

func badRequest(format string, args ...any) *problem {
	return newProblem(http.StatusBadRequest, "bad-request", "The request can't be understood", fmt.Sprintf(format, args...))
}

func (p *problem) Error() string { return p.Title + ": " + p.Detail }

func (p *problem) write(w http.ResponseWriter) {
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, p.Status, "application/problem+json", p)
}

// fail logs what is not the client's: its text names servers, and stays here.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	var own *problem
	if errors.As(err, &own) && !errors.Is(err, guard.ErrUnknownOutcome) {
		own.write(w)
		return
	}
	if status := guardhttp.Status(err); status >= http.StatusInternalServerError {
		a.log.Warn("request failed", "method", r.Method, "path", r.URL.Path, "status", status, "error", err)
	}
	guardhttp.Error(w, r, err)
}

// writeJSON ignores a client that no longer listens: its key finds the outcome.
func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	data, err := json.Marshal(body)
	if err != nil { // none of the types here can fail
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}

// unmatched makes a problem of the mux's own answers: no such path, or another method.
type unmatched struct{ http.ResponseWriter }

func (u unmatched) WriteHeader(status int) {
	(&problem{Type: "about:blank", Title: http.StatusText(status), Status: status}).write(u.ResponseWriter)
}

func (u unmatched) Write(text []byte) (int, error) { return len(text), nil }
