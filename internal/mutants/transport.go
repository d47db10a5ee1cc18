package mutants

// onTheWay is a test of the answers that clients get, and of the grants that they send.
func onTheWay(name string) Test { return Test{"internal/transport", name} }

// transportMutants are in how grants and errors travel.
var transportMutants = []Mutant{
	change("clients-repeat-what-may-have-taken-effect", "G4", "internal/transport/problem.go",
		`if guard.SafeToRetry(err) {`, `if guard.SafeToRetry(err) || true {`,
		onTheWay("TestOf_AsksTheQuestionsInOrder")),
	change("clients-repeat-what-a-raw-commit-wrote", "G4", "internal/transport/problem.go",
		"\tcase errors.Is(err, guard.ErrTxEnded):\n\t\treturn Internal\n", "",
		onTheWay("TestOf_AsksTheQuestionsInOrder")),
	change("tokens-for-clients-that-sent-no-grant", "HC5", "internal/transport/problem.go",
		` || !slices.Contains(sent, rejected.Grant) {`, ` {`,
		onTheWay("TestSuperseded_IsOfAGrantThatTheClientSent")),
	change("grants-of-leases-travelled", "G3", g+"caller_runner.go",
		`travelled: !b.leased`, `travelled: true`,
		inGuard("TestRejection_SaysThatTheGrantTravelled")),
	change("two-grants-of-one-resource-are-taken", "HC5", "internal/transport/grants.go",
		`if seen[grant.Resource] {`, `if seen[grant.Resource+"\x00"] {`,
		onTheWay("TestParseGrants_RejectsAllIfOneIsWrong")),
	change("grants-without-number-are-taken", "HC5", "internal/transport/grants.go",
		`if len(grants) == maxGrants {`, `if len(grants) == maxGrants*maxGrants {`,
		onTheWay("TestParseGrants_RejectsAllIfOneIsWrong")),
}
