// Package load runs operations of one contender in worker processes and measures them.
//
// A worker is this program again, in a process of its own: so the CPU time and the
// allocations of a client are those of one contender and nothing else, and a contender of
// several processes is no special case. For each cell of the benchmark workers are started,
// open their connections, wait for each other, run until each has used what it keeps, then
// for a time that is measured, and end. Nothing that one cell leaves in memory is there in the next.
//
// An operation counts if it ended within the measured time. One that has begun when that is
// over is waited for.
package load
