package mutants

// inFront is a test of the root package.
func inFront(name string) Test { return Test{".", name} }

// frontMutants are in the Guard of the root package.
var frontMutants = []Mutant{
	change("leaderships-end-before-calls", "HD13", "fencekit.go",
		"\tguardErr := g.Guard.Close(ctx)\n",
		"\t_ = g.Locker.Close(ctx)\n\tguardErr := g.Guard.Close(ctx)\n",
		inFront("TestClose_EndsCallsThenReleasesThenEndsLeaderships")),
	change("close-in-a-function-ends-the-locker", "L1", "fencekit.go",
		`if errors.Is(guardErr, guard.ErrInvalid) {`, `if false {`,
		inFront("TestClose_InAFunctionClosesNothing")),
	change("limits-as-long-as-the-lock-lives", "L1", "fencekit.go",
		`limit.value >= ttl`, `limit.value > ttl`,
		inFront("TestNew_RejectsLimitsThatDontFitAndSaysWhatToSet")),
	change("check-succeeds-where-rights-are-missing", "HD8", "fence/etcd/internal/cluster/cluster.go",
		`if !c.Keys.Mutex { // where`, `if c.Keys.Mutex { // where`,
		inEtcd("TestCheck_FailsWithoutARightThatAnAcquisitionNeeds")),
}
