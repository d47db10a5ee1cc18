package mutants

// shardMutants are in what keeps the data of several databases apart.
var shardMutants = []Mutant{
	change("claim-in-any-shard", "HE9", functionsSQL,
		"if (coalesce(s.shard, '') = p_shard) is not true then", "if false then",
		inPostgres("TestShard_ClaimsForAnotherAreRejected_HE9")),
	change("check-takes-any-shard", "HE9", "storage/postgres/check.go",
		"s.checkShard(ctx); err != nil {", "s.checkShard(ctx); false && err != nil {",
		inPostgres("TestShard_ClaimsForAnotherAreRejected_HE9")),
	change("shard-set-where-there-are-fences", "HE9", "storage/postgres/shard.go",
		`and not exists (select from "+schema+".resource)`, ``,
		inPostgres("TestSetShard_NeedsADatabaseThatHoldsNothing")),
	change("shard-set-where-there-is-one", "HE9", "storage/postgres/shard.go",
		`where shard is null and`, `where`,
		inPostgres("TestSetShard_NeedsADatabaseThatHoldsNothing")),
	change("call-goes-to-the-first-resources-shard", "HE9", "guard/shards.go",
		"if s.Guard(resource) != of {", "if false && s.Guard(resource) != of {",
		inGuard("TestShards_RejectWhatSpansTwo_HE9")),
	change("function-calls-another-shard", "HB9", "guard/shards.go",
		"ok && g != of {", "ok && false {",
		inGuard("TestShards_RejectWhatSpansTwo_HE9")),
	change("shards-close-in-a-function", "HB9", "guard/shards.go",
		"if ctx.Value(g.key) != nil {", "if false {",
		inGuard("TestShards_CloseClosesAllUnlessAFunctionCallsIt")),
}
