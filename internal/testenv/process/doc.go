// Package process runs servers as child processes, or as containers: each with a
// directory and ports of its own that outlive it, so that it can be killed, paused and
// started again.
//
// It sees to it that nothing outlives the process that started them, by the death
// signal of Linux, by a child that waits for the end of its owner (the janitor), and by
// a sweep of what dead owners have left. See package testenv.
package process
