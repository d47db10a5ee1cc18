package mutants

const (
	tablesSQL     = "storage/postgres/migrations/0001_tables.sql"
	functionsSQL  = "storage/postgres/migrations/0002_functions.sql"
	marksSQL      = "storage/postgres/migrations/0003_marks.sql"
	timelineSQL   = "storage/postgres/migrations/0004_timeline.sql"
	operationsSQL = "storage/postgres/migrations/0005_operations.sql"
)

// inPostgres is a test of the store.
func inPostgres(name string) Test { return Test{"storage/postgres", name} }

// inContract is a part of the contract of stores, at the default isolation level.
func inContract(part string) Test {
	return inPostgres("TestStore_PassesTheContract/read_committed/" + part)
}

// claimMutants are in the functions claim, locked and head.
var claimMutants = []Mutant{
	change("claim-does-not-raise", "G1 G3", timelineSQL,
		`if (r.epoch, r.token) < (p_epoch, p_token) then`, `if false then`,
		inPostgres("TestFence_RefusesTheSuperseded_G2_G3_G5/read_committed/before_the_seal")),
	change("claim-lets-a-lower-token-in", "G3", timelineSQL,
		`if (r.epoch, r.token) > (p_epoch, p_token) or (r.epoch, r.token) = (p_epoch, p_token) and r.holder <> p_holder then`,
		`if (r.epoch, r.token) = (p_epoch, p_token) and r.holder <> p_holder then`,
		inContract("Claim_RefusesLowerToken_G3")),
	change("claim-takes-any-holder", "G2 N10", timelineSQL,
		` or (r.epoch, r.token) = (p_epoch, p_token) and r.holder <> p_holder then`, ` then`,
		inPostgres("TestFence_RefusesTheTokenIssuedTwice_N10/read_committed")),
	change("claim-repeated-moves-the-fence", "G1", timelineSQL,
		`if (r.epoch, r.token) < (p_epoch, p_token) then`, `if (r.epoch, r.token) <= (p_epoch, p_token) then`,
		inContract("Claim_OfTheHolderIsIdempotent_G1")),
	change("claim-shares-the-lock", "G3 HB11", functionsSQL,
		"select * into r from {{schema}}.resource where name = p_name for no key update;\n    if found then",
		"select * into r from {{schema}}.resource where name = p_name for share;\n    if found then",
		inPostgres("TestClaim_IsAloneWithTheFence_G3")),
	change("claim-does-not-lock", "G3", functionsSQL,
		"select * into r from {{schema}}.resource where name = p_name for no key update;\n    if found then",
		"select * into r from {{schema}}.resource where name = p_name;\n    if found then",
		inPostgres("TestClaim_IsAloneWithTheFence_G3")),
	change("claim-takes-an-epoch-that-is-over", "N20", timelineSQL,
		`if s.epoch > p_epoch then`, `if false then`,
		inPostgres("TestClaim_EpochOnlyRises_N20")),
	change("head-lets-the-superseded-begin", "N17", timelineSQL,
		`if not found or (r.epoch, r.token) is distinct from (p_epoch, p_token) then`, `if not found then`,
		inPostgres("TestHead_TurnsTheLateAway_N17")),
	change("head-sets-the-name-beyond-the-transaction", "N15 HB18", timelineSQL,
		`perform set_config('fencekit.tx', {{schema}}.mark(p_tx), true);`, `perform set_config('fencekit.tx', {{schema}}.mark(p_tx), false);`,
		inPostgres("TestPooler_NothingOfOursStaysOnTheServersConnection_HB18")),
}
