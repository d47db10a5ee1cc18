package mutants

const (
	contractSQL  = "storage/postgres/migrations/0005_contract.sql"
	viewsSQL     = "storage/postgres/migrations/0004_views.sql"
	pythonClient = "examples/python/fencekit.py"
)

var recordsOperations = inPostgres("TestSealOne_RecordsOperationsOnly")

func inPython(name string) Test { return Test{"examples/python", name} }

// contractMutants are in the protocol's functions for other languages, and in the client in Python.
var contractMutants = []Mutant{
	change("contract-changes-without-its-version", "G2", contractSQL,
		`xid bigint, own_tx bigint, ops json default null`, `own_tx bigint, xid bigint, ops json default null`,
		inPostgres("TestContract_ChangesWithItsVersionOnly")),
	change("contract-claim-ignores-its-verdict", "G3", contractSQL,
		`if v_state is not null then`, `if false then`,
		inPostgres("TestContract_RejectsWhatCannotBeMeant")),
	change("contract-seal-dropped", "G2 G3", contractSQL,
		`    call {{schema}}.seal(array[fence], array[epoch], array[token], array[pg_catalog.encode(pg_catalog.convert_to(holder, 'UTF8'), 'hex')],
                         array[seq], array[tx], own_tx, array[coalesce(pg_catalog.encode(pg_catalog.convert_to(ops::pg_catalog.text, 'UTF8'), 'hex'), '')], v_xid);
`, "",
		inPostgres("TestSealOne_DoesAllThatBelongsToASeal_N13_G2")),
	change("contract-seals-any-transaction", "G2 N15", contractSQL,
		`xid::pg_catalog.text::pg_catalog.xid8;`, `pg_catalog.pg_current_xact_id();`,
		inPostgres("TestContract_RejectsWhatCannotBeMeant")),
	change("contract-seals-before-deferred-constraints", "N13", contractSQL,
		"    set constraints all immediate;\n    call", "    call",
		inPostgres("TestSealOne_DoesAllThatBelongsToASeal_N13_G2")),
	change("contract-defers-after-the-seal", "N13", contractSQL,
		`    set transaction read only;`, ``,
		inPostgres("TestSealOne_DoesAllThatBelongsToASeal_N13_G2")),
	change("contract-leaves-cursors-to-commit", "N13", contractSQL,
		`    execute 'close all';`, ``,
		inPostgres("TestSealOne_DoesAllThatBelongsToASeal_N13_G2")),
	change("contract-resolves-what-is-null", "G4", functionsSQL,
		`if num_nulls(p_resource, p_epoch, p_token, p_holder, p_seq, p_prev, p_tx, p_void) > 0 then`, `if false then`,
		inPostgres("TestContract_RejectsNulls_G4")),
	change("contract-waits-for-ever-if-lock-ms-is-null", "L1", contractSQL,
		`if lock_ms is null then`, `if false then`,
		inPostgres("TestContract_RejectsNulls_G4")),
	change("contract-begins-without-limits", "L1", contractSQL,
		`if num_nulls(fence, epoch, token, lock_ms, statement_ms, idle_ms, network_ms, check_ms) > 0 then`, `if false then`,
		inPostgres("TestContract_RejectsNulls_G4")),
	change("contract-records-anything", "G5", contractSQL,
		`if not {{schema}}.well_formed(ops) then`, `if false then`, recordsOperations),
	change("well-formed-lets-elements-be-anything", "G5", viewsSQL,
		`
       and not v_ops @? 'strict $[*] ? (@.type() != "object")'`, ``, recordsOperations),
	change("well-formed-lets-fields-be-anything", "G5", viewsSQL,
		`!((@.key == "id" || @.key == "name") && @.value.type() == "string" || @.key == "attrs" && @.value.type() == "object")`, `1 == 0`, recordsOperations),
	change("well-formed-lets-attributes-be-anything", "G5", viewsSQL,
		`(@.value.type() != "string")`, `(1 == 0)`, recordsOperations),
	change("well-formed-fails-itself", "HF2", viewsSQL,
		`exception when data_exception or program_limit_exceeded then`, `exception when division_by_zero then`,
		inPostgres("TestEntries_WithMalformedOperations")),
	change("store-drops-malformed-operations", "HF2", "internal/record/ops.go",
		`return []storage.OpRecord{{Attrs: map[string]string{"malformed": text}}}`, `return nil`,
		inPostgres("TestEntries_WithMalformedOperations")),
	change("contract-evicts-nothing", "L1", contractSQL,
		`wait_ms, thorough) e;`, `wait_ms, thorough) e where false;`,
		inPostgres("TestEvictOne_EndsEarlierTransactions_L1")),
	change("python-does-not-seal", "G2 G3", pythonClient,
		`select fence.seal_one({}); commit`, `commit -- {}`,
		inPython("TestGuarded_RejectsWhatWasSupersededInside_G2_G3_G5")),
	change("python-takes-a-lost-commit-for-success", "G4", pythonClient,
		"        return False\n    finally:", "        return True\n    finally:",
		inPython("TestGuarded_ResolvesALostCommit_G4/itself")),
	change("python-takes-a-warning-for-success", "G4", pythonClient,
		` and "WARNING" not in severities`, ``,
		inPython("TestGuarded_AsksAfterAnUnclearAnswer_G4/a_warning")),
	change("python-takes-any-tag-for-success", "G4", pythonClient,
		`answer.statusmessage == "COMMIT" and `, ``,
		inPython("TestGuarded_AsksAfterAnUnclearAnswer_G4/another_tag")),
	change("python-believes-poolers", "G4", pythonClient,
		`if not conn.closed and e.diag.source_function:`, `if not conn.closed:`,
		inPython("TestGuarded_AsksAfterAnUnclearAnswer_G4/an_error_of_a_pooler's")),
	change("python-lets-its-block-commit", "G2", pythonClient,
		`with conn.transaction():`, `if True:`,
		inPython("TestGuarded_EndsAsItsBlockDoes_G2/commit")),
	change("python-takes-any-text-for-a-grant", "G3", pythonClient,
		`if not bounded or str(grant) != text:`, `if not bounded:`,
		inPython("TestGrant_IsWhatGoReads")),
}
