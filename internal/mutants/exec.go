package mutants

import "slices"

const supervise = "cmd/fencectl/internal/supervise/"

// inFencectl is a test of the command fencectl.
func inFencectl(name string) Test { return Test{"cmd/fencectl", name} }

// inSupervise is a test of what ends a command with its lock.
func inSupervise(name string) Test { return Test{"cmd/fencectl/internal/supervise", name} }

// execMutants are in what runs a command while a lock is held, in what operators do to locks, and in
// what examines an installation.
var execMutants = slices.Concat(doctorMutants, epochMutants, []Mutant{
	change("watchdog-spares-the-group-at-the-deadline", "F3", supervise+"watchdog.go",
		"case left <= 0:\n\t\t\t_ = syscall.Kill(-group, syscall.SIGKILL)\n", "case left <= 0:\n",
		inFencectl("TestExec_TheCommandDoesNotOutliveTheLock/runs/stopped/1")),
	change("watchdog-kills-the-command-alone", "F3", supervise+"watchdog.go",
		"case !alive:\n\t\t\t\t_ = syscall.Kill(-group,", "case !alive:\n\t\t\t\t_ = syscall.Kill(group,",
		inFencectl("TestExec_TheCommandDoesNotOutliveTheLock/runs/killed/0")),
	change("loss-of-the-lock-is-not-heard", "F3", supervise+"run.go",
		"if left <= j.grace {", "if left < 0 {",
		inSupervise("TestRun_LostWhileTheCommandRuns")),
	change("exec-leaves-the-group-behind", "F3", supervise+"run.go",
		"\tj.clear()\n", "",
		inFencectl("TestExec_EndsWhatTheCommandLeavesBehind")),
	change("exec-runs-on-while-its-command-is-stopped", "F3", supervise+"run.go",
		"\t_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)\n", "",
		inFencectl("TestExec_TheCommandHasTheTerminal")),
	change("exec-begins-although-the-lock-is-lost", "F3", supervise+"run.go",
		"err != nil || j.lost {", "err != nil {",
		inSupervise("TestRun_LostBeforeTheCommandBegins")),
	change("exec-moves-a-deadline-that-has-passed", "F3", supervise+"run.go",
		"if at >= j.deadline {", "if false {",
		inSupervise("TestExtend_LeavesADeadlineThatHasPassed")),
	change("exec-takes-what-it-may-not-signal-for-gone", "F3", supervise+"group.go",
		"return !errors.Is(err, syscall.ESRCH)", "return err == nil",
		inSupervise("TestIsLeft_AlsoWhatMayNotBeSignalled")),
	change("eviction-of-any-token", "F2", etcd+"inspector_evict.go",
		`clientv3.Compare(clientv3.CreateRevision(holder.key), "=", token),`, `clientv3.Compare(clientv3.CreateRevision(holder.key), ">", 0),`,
		inEtcd("TestEvict_OfAHolderThatHasGoneChangesNothing")),
	change("eviction-of-a-waiter", "F2", etcd+"inspector_evict.go",
		`clientv3.CreateRevision(queue), ">", token-1)`, `clientv3.CreateRevision(queue), ">", 0)`,
		inEtcd("TestEvict_OfAHolderThatHasGoneChangesNothing")),
	change("bump-raises-etcd-first", "N20", "cmd/fencectl/epoch_bump.go",
		"\tif err = b.raiseDatabases(ctx, s, target); err != nil {\n\t\treturn s, target, err\n\t}\n\treturn s, target, b.raiseEtcd(ctx, s, target)\n",
		"\tif err = b.raiseEtcd(ctx, s, target); err != nil {\n\t\treturn s, target, err\n\t}\n\treturn s, target, b.raiseDatabases(ctx, s, target)\n",
		inFencectl("TestEpochBump_IsResumedByRunningItAgain")),
	change("bump-does-not-look-before-it-writes", "N20", "cmd/fencectl/epoch_bump.go",
		"if err = b.mayWrite(ctx, s, target); err != nil || b.dryRun {", "if b.dryRun {",
		inFencectl("TestEpochBump_LooksAtTheRightsInEtcdFirst")),
})
