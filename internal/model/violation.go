package model

// Violation names the property that a state breaks; the zero value is Holds.
// The ids are those of docs/protocol.md.
type Violation uint8

const (
	// Holds: every reachable state keeps every property.
	Holds Violation = iota

	// LostUpdate (G2, G3, G6): the data is not what the operations that took
	// effect would have made of them one after another. This is the data
	// oracle: it counts what was written and never uses the fence,
	// tokens or at the history.
	LostUpdate

	// TokenOrder: a transaction of a lower token took effect after one of a
	// higher token. This is all that a checker of token logs can see.
	TokenOrder

	// AppliedTwice (G4): one operation took effect twice.
	AppliedTwice

	// AckedNotApplied (G4): the answer was that the operation took effect,
	// and it did not.
	AckedNotApplied

	// DeniedButApplied (G4): the answer was that the operation did not take
	// effect, and it did, before or after the answer.
	DeniedButApplied

	// OlderCommitted (G1, G3): a transaction of a lower token, or of another
	// holder of the same token, took effect after a newer grant had claimed or
	// after user code had run under it.
	OlderCommitted

	// UnjustifiedStale (G5): a client was rejected as stale and no higher claim
	// had committed.
	UnjustifiedStale

	// UntrueReason (G5): a client was rejected as overtaken, and no other one had its grant;
	// or because the database went back, and it had not.
	UntrueReason

	// TornRead (G13): a read-only operation was answered with data of two positions.
	TornRead

	// StaleRead (G13): a read-only operation was answered with data that were no longer
	// those of the database when it was checked, or that a synchronous standby lacked.
	StaleRead

	// Stuck: nothing can happen any more, and a client has not been answered; of
	// acquisition: all calls wait, though nothing is lost (HB10).
	Stuck
)

// String returns the table's words for v.
func (v Violation) String() string {
	return [...]string{
		Holds:            "HOLDS",
		LostUpdate:       "FAILS data: lost update",
		TokenOrder:       "FAILS token order",
		AppliedTwice:     "FAILS data: applied twice",
		AckedNotApplied:  "FAILS answer: applied, but it is not",
		DeniedButApplied: "FAILS answer: not applied, but it is",
		OlderCommitted:   "FAILS order: an older grant committed",
		UnjustifiedStale: "FAILS rejection: stale without a higher claim",
		UntrueReason:     "FAILS rejection: a reason that is not so",
		TornRead:         "FAILS read: of two positions",
		StaleRead:        "FAILS read: not the present state",
		Stuck:            "FAILS progress: stuck",
	}[v]
}
