// Package history is the record that the processes of a chaos run write, a file of JSON
// lines: operations and their outcomes, what each worker's Guard reported, and the faults.
//
// # Model
//
// An Event is one line. Its time is the machine's monotonic clock, which all processes of
// one machine share, so events of different processes can be ordered. An operation has an
// invoke event and at most one of ok, fail and unknown; an operation without one was cut
// off with its process, and counts as unknown.
//
// What workers record of their Guards (acquired, claimed, rejected, …) is Fencekit's
// own word: it explains a run, and is checked against what package observe saw. It is never
// taken for the truth.
//
// # What is not promised
//
// Times of different machines can't be compared. A worker stamps an event before
// it writes it: two events of different processes that are closer than the time
// between have no order.
package history
