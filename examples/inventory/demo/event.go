package demo

import (
	"encoding/json"
	"io"
)

// What a worker tells its parent, one JSON line each.
const (
	eventHolds    = "holds"    // the worker got the lock
	eventSold     = "sold"     // an order was allocated
	eventPausing  = "pausing"  // between its read and its write, about to stop
	eventResumed  = "resumed"  // going on after that
	eventRejected = "rejected" // the fence rejected a write
	eventSoldOut  = "sold out" // nothing left to sell; the worker ends
	eventFailed   = "failed"   // anything else; the worker ends
)

type event struct {
	Event     string  `json:"event"`
	Order     string  `json:"order,omitempty"`
	Quantity  int     `json:"quantity,omitempty"`
	Available int     `json:"available,omitempty"`
	Token     int64   `json:"token,omitempty"`
	Current   int64   `json:"current,omitempty"`
	Holder    string  `json:"holder,omitempty"`
	Age       float64 `json:"age,omitempty"` // of Current's claim, in seconds
	Error     string  `json:"error,omitempty"`

	Sold map[string]int `json:"sold,omitempty"` // by each worker so far, when pausing
}

// tell writes e. A parent that no longer listens is not the worker's concern.
func tell(w io.Writer, e event) {
	line, _ := json.Marshal(e)
	_, _ = w.Write(append(line, '\n'))
}
