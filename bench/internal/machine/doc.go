// Package machine reads from Linux's /proc how much CPU time the benchmark's processes have
// used, and how much everything else on the machine has.
//
// CPU times of processes come in ticks of 10 ms: over a cell of a second or more that is
// below the spread of the rounds.
package machine
