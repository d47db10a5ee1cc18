// Package mutants breaks Fencekit on purpose, in one place at a time, and
// shows which test notices. It is for this module's own use: "make mutants".
//
// # Model
//
// A Mutant replaces a piece of source text that occurs exactly once, in a Go file
// or a migration, and names its killer: the test that has to fail then. The tree is
// never touched: the go command reads the changed text in place of the file
// (-overlay). A mutant is killed if it compiles, or migrates, and its killer fails by
// itself; one that doesn't, or that merely makes the tests run out of time, shows
// nothing and is an error of the table. So is a killer that fails without a mutant.
//
// Some mutants survive, because another line does the same work or because the
// change makes no difference. Each says why; where two lines guard one thing, a
// further mutant takes both away and is killed.
//
// # What is not promised
//
// That the killer fails in every run of a mutant which breaks a race: the table
// names tests that play a schedule, not those that wait for luck. And no table
// holds all mistakes that can be made.
package mutants
