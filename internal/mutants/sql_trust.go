package mutants

// trustMutants are in what an app role could forge.
var trustMutants = []Mutant{
	change("mark-without-the-secret", "G2", functionsSQL,
		`sha256(v_secret || int4send(p_resource)`, `sha256(int4send(p_resource)`,
		inPostgres("TestForge_TheMarkTakesTheSecret_G2")),
	change("mark-of-any-resource", "G2", functionsSQL,
		`sha256(v_secret || int4send(p_resource) ||`, `sha256(v_secret ||`,
		inPostgres("TestForge_NoSealWithoutItsHead_G2/the_head_of_another_resource")),
	change("mark-of-any-name", "G2", functionsSQL,
		`int8send(p_token) || int8send(p_tx)
`, `int8send(p_token)
`,
		inPostgres("TestForge_NoSealWithoutItsHead_G2/the_head_of_another_name")),
	change("mark-in-a-plan", "G2", functionsSQL,
		`select value into v_secret from {{schema}}.secret;`, `select value into v_secret from {{schema}}.secret; perform v_secret;`,
		inPostgres("TestForge_TheSecretIsNotPrinted")),
	change("resolve-takes-a-void-for-a-commit", "G4", functionsSQL,
		`when v_tx = p_tx and v_kind = 'write' then`, `when v_tx = p_tx then`,
		inPostgres("TestForge_OnlyAWriteIsACommit_G4")),
	change("keep-without-a-head", "G2", functionsSQL,
		`perform {{schema}}.entered(p_resource, r.epoch, r.token, p_tx);`,
		`if not found then
        perform {{schema}}.entered(p_resource, r.epoch, r.token, p_tx);
    end if;`,
		inPostgres("TestForge_NoKeyWithoutAHead_G2")),
}
