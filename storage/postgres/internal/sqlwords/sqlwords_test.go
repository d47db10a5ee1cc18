package sqlwords_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage/postgres/internal/sqlwords"
)

func TestAnyControlsTransaction_OfSeveralStatements(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"commit", " ; commit", "select 1; rollback; begin", "select 1;commit", "select 1; END", "select 1; start transaction",
		"select $€$'$€$; commit; select ''", `select '\' as "'", E'a''\''; commit; select ''`, "select '\\' as \"'\", E'a'\n'\\''; commit; select ''", "select '\x83\x5c'",
		"select 1; /* ; */ commit", "select 1; -- ;\n commit", "select 1; -- ;\r commit", "select 1 /* ; /* ; */ ; */; abort",
		"select ';'; commit", "select 'it''s;'; commit", `select E'\';'; commit`, `select e'\\'; commit`, `select '\'; commit; --'`, `select '\''; commit; --'`, `select 'a\\'; commit`,
		`select 1 as ";"; commit`, `select 1 as "a"";"; commit`, "select $$;$$; commit", "select $a$;$$;$a$; commit", "select $1; commit",
		"select a$b from t; commit; select a$b from t", `select nameE'\'; commit --'`, "select 1; prepare transaction 'p'",
		"select 1; ; (; commit", "do $ä$;$ä$; commit",
	} {
		require.True(t, sqlwords.AnyControlsTransaction(text), text)
	}
	for _, text := range []string{
		"", ";", "select 1", "select 1; select 2;", "savepoint a; rollback to a", "rollback to savepoint a; release a",
		"do $$ begin raise exception 'x'; end $$", "do $body$ begin perform $$a; commit$$; end $body$; select 1",
		"insert into t values ('a; commit')", `insert into t values ('C:\a; commit'), ('\\')`, `insert into t values (E'\'; commit')`, `select 'ä', E'\'; commit; --'`, `select 1 as "; commit"`,
		"select 1 -- ; commit", "/* ; commit */ select 1", "select 'x; commit", "select $$; commit", "/* ; commit",
		"prepare p as select 1; execute p", "select case when true then 1 end; set constraints all immediate",
	} {
		require.False(t, sqlwords.AnyControlsTransaction(text), text)
	}
}

// A text is read whatever it is.
func FuzzAnyControlsTransaction(f *testing.F) {
	for _, text := range []string{"select 1; commit", "E'\\", "$a$;$a$", "/* /* */", "--\n;", "\xff$;"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		sqlwords.AnyControlsTransaction(text)
		require.True(t, sqlwords.AnyControlsTransaction("commit;"+text))
	})
}
