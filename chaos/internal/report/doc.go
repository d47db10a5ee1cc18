// Package report writes the results of chaos runs as one HTML file, for people.
//
// # Model
//
// The page opens with the verdict in a sentence, shows the groups side by side under the
// same faults, shows one run as an example (which worker held, which was paused, what was
// rejected, and what a control did under the same schedule), and then gives the figures. A
// figure is a pure function from data to SVG. Its data is reduced to what can be seen before
// it is drawn, so that the size of the page depends on the number of runs alone, and is
// bounded.
//
// The page is self-contained: it has no script, loads nothing, and forbids the
// browser to. Text from runs (names of resources, errors) is untrusted, and is escaped in
// two places only: html/template, and drawing.
//
// The remaining stock in figures is the initial stock minus what orders say was sold, in the
// order of the times at which the operations were answered. It is not the column that
// operations wrote: that one never falls below zero.
//
// # What is not promised
//
// Positions in figures are exact to a pixel. Tracks are drawn from the workers' own events,
// which the checks compare with what was observed; figures prove nothing.
package report
