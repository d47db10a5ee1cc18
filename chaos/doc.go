// Package chaos runs guarded code in real processes, does to them what machines
// and networks do to processes, and judges what happened.
//
// # Model
//
// A Workload is code under test: it prepares data, operates on it, and checks it.
// A Scenario is what goes wrong meanwhile: a schedule of faults that is made from a
// seed, or a script. A run puts them together: worker processes are this binary
// itself, executed again (Main, Reexec); each reaches etcd and Postgres through
// links of its own that can be cut. The workers write a history of what they did,
// and observers record it from outside; checkers judge both, property by property.
//
// The same scenario runs with the framework and with controls: recipes that are
// known to break under these faults. A run in which a control survives is
// inconclusive.
//
//	func TestMain(m *testing.M) { chaos.Main(m, deductions{}) }
//
//	func TestChaos(t *testing.T) { chaos.Test(t, chaos.Config{Workload: deductions{}}) }
//
// README.md has a whole example, and examples/counter is it.
//
// # Verdicts
//
// A run passes if every property held and it met what it was meant to meet; it is
// violated if a property was; it is inconclusive if it shows nothing: a fault
// missed, an observer had a gap. Inconclusive is not a pass.
//
// # What is not promised
//
// A seed fixes operations and faults, not how the machine interleaves them: the
// same seed is the same schedule, not the same run. That no violation was found in
// n runs says something only together with what the same faults did to the
// controls. Power failures, disks that lie, clocks that jump, and several machines
// are beyond what one machine can show.
package chaos
