package scenario

import "slices"

// All returns all scenarios.
func All() []Scenario { return slices.Concat(families(), scripts) }

// scripts are the scenarios that go step by step, in the order in which they run.
var scripts = []Scenario{
	stalledHolder,
	stalledWriter,
	unhinderedWriter,
	lostLock,
	killWhileLocking,
	expiryAtEveryAwait,
	killAtEveryAwait,
	pauseAtEveryPoint,
	isolatedHolder,
	etcdLeader,
	abandonedWaiter,
	compaction,
	firstUse,
	herd,
	noSpace,
	forgedTokens,
	lateCommit,
	lostAnswer,
	userCode,
	failover,
}
