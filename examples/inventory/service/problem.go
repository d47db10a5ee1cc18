package service

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// problem is an answer that is not the one hoped for, as RFC 9457 has it
// (application/problem+json). It is an error, so that whatever finds the problem
// returns it.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	*refusalFacts
	*shortage
	Away []string `json:"away,omitempty"` // what can't be used

	// again: the same request, sent again, may well succeed.
	again bool
	// undone: the request took no effect, which told says in its own words.
	undone bool
}

// refusalFacts say which grant was refused, and for whose.
type refusalFacts struct {
	Resource     string     `json:"resource"`
	Reason       string     `json:"reason"`
	Token        string     `json:"token"`
	CurrentToken string     `json:"current_token"`
	Holder       string     `json:"holder"`          // of the current token
	Since        *time.Time `json:"since,omitempty"` // when that one was claimed, if it was
}

// shortage says how much was asked for, and how much there was.
type shortage struct {
	SKU       string `json:"sku"`
	Qty       int    `json:"qty"`
	Available int    `json:"available"`
}

// problemType makes the type of a problem from its name.
func problemType(name string) string { return "urn:fencekit:inventory:" + name }

func newProblem(status int, name, title, detail string) *problem {
	return &problem{Type: problemType(name), Title: title, Status: status, Detail: detail}
}

// plainProblem is one of which the status says it all.
func plainProblem(status int, detail string) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}

// later is a problem that should be gone when the same request is sent again.
func later(name, title, detail string, away ...string) *problem {
	p := newProblem(http.StatusServiceUnavailable, name, title, detail)
	p.again, p.Away = true, away
	return p
}

// undone is later for what kept a request from taking any effect.
func undone(name, title, detail string, away ...string) *problem {
	p := later(name, title, detail, away...)
	p.undone = true
	return p
}

// told completes the detail for a request by this method.
func (p *problem) told(method string) *problem {
	advice := "Send the same request again."
	if method == http.MethodPost {
		advice = "Nothing was deducted by this attempt. Send the same request with the same key again."
	}
	if p.undone {
		p.Detail = strings.TrimSpace(p.Detail + " " + advice)
	}
	return p
}

func (p *problem) Error() string { return p.Title + ": " + p.Detail }

// retryAfter is for how long a client should wait, in seconds.
const retryAfter = "1"

func (p *problem) write(w http.ResponseWriter) {
	if p.again {
		w.Header().Set("Retry-After", retryAfter)
	}
	writeJSON(w, p.Status, "application/problem+json", p)
}

// writeJSON writes body whole. A client that no longer listens is not our concern:
// what it asked for has an outcome already, and its key finds that.
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
