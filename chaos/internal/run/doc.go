// Package run runs scenarios of chaos, one or many: it decides which seeds are run and in
// which order, starts the servers, does each run, checks it, and writes its files and the
// reports.
//
// A run that could not be judged, because a server did not start or a fault could not be
// reverted, is an error and not a verdict. The files of a run replace those of an
// unfinished one.
package run
