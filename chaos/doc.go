// Package chaos runs guarded code in real processes, injects the faults of machines and
// networks into them, and judges what happened.
//
// # Model
//
// A Workload is the code under test: it prepares data, operates on it, and checks it. A
// scenario is what goes wrong meanwhile: a schedule of faults that is made from a seed, or a
// script. A run combines the two. Its worker processes are this binary itself, executed
// again (Main, Reexec); each reaches etcd and Postgres over its own links, which can be cut.
// The workers write a history of what they did, and observers record it from outside; checks
// compare both, property by property.
//
// The same scenario runs with Fencekit and with controls: recipes that are
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
// A run passes if every property held and everything that the scenario requires happened. It
// is violated if a property was. It is inconclusive if it proves nothing: a fault found no
// victim, an observer had a gap. Inconclusive is not a pass.
//
// # What is not promised
//
// A seed determines operations and faults, not how the machine interleaves them: the same
// seed is the same schedule, not the same run. "No violation in n runs" is worth only as much
// as the damage that the same faults did to the controls. Power failures, disks that lie,
// clocks that jump, and several machines are beyond what one machine can test.
package chaos
