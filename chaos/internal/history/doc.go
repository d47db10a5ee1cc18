// Package history is what the processes of a chaos run tell, in one file of JSON
// lines: what workers asked for and what they were answered, what their Guards
// saw, and what was done to them.
//
// # Model
//
// An Event is one line. Its time is the machine's monotonic clock, which all
// processes of one machine share, so events of different processes can be
// ordered. An operation has an invoke event and at most one of ok, fail and
// unknown; one without was cut off with its process, and is as good as unknown.
//
// What workers tell of their Guards (acquired, claimed, refused, …) is the
// framework's own word: it tells the story of a run, and is checked against what
// package observe saw, never used as the truth.
//
// # What is not promised
//
// Times of different machines can't be compared. A worker stamps an event before
// it writes it: two events of different processes that are closer than the time
// between have no order.
package history
