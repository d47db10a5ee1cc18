// Package report writes what chaos runs have shown as one HTML file, for people.
//
// # Model
//
// The page opens with the verdict in a sentence, shows the groups side by side
// under the same faults, tells the story of one run (who held, who was paused,
// what was rejected, and what a control did under the same schedule), and then
// gives the figures. A figure is a pure function from data to SVG; its data is
// thinned out to what can be seen before it is drawn, so that the size of the
// page depends on the number of runs alone, and is bounded.
//
// The page is self-contained: it has no script, loads nothing, and forbids the
// browser to. What comes from runs (names of resources, errors) is untrusted
// text, and is escaped in two places only: html/template, and drawing.
//
// The remaining stock in figures is what was there minus what orders say was
// sold, in the order of the times at which the operations were answered. It is
// not the column that operations wrote: that one never falls below zero.
//
// # What is not promised
//
// Positions in figures are as exact as a pixel. Lanes are drawn from what workers
// told of themselves, which the checks compare with what was observed; figures
// prove nothing.
package report
