package sqlwords_test

import (
	"strings"
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
		atomic + "select case when true then 1 end; select 2; end", "select 1; " + atomic + "return 1; end; select 2", atomic + "end", strings.ToUpper(atomic) + "/* ; */ SELECT 1; END;",
		"create procedure p(a int default (1)) -- ;\nbegin /* */ atomic insert into t values (a); end",
		"prepare p as select 1; execute p", "select case when true then 1 end; set constraints all immediate",
	} {
		require.False(t, sqlwords.AnyControlsTransaction(text), text)
	}
}

const atomic = "create or replace function f(int) returns int language sql begin atomic "

func TestAnyCopies(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"copy t from stdin", "COPY t (a, b) FROM\nSTDIN WITH (format csv)", "copy t to stdout", "copy t from stdout", "copy (select a from u) to stdout", "/* */ copy t -- to x\n from /* */ stdin",
		"select 1; copy t from stdin", `copy "from" from stdin`, "copy s.from from stdin;", "copy t from stdin where a > 1", "copy stdin from stdin", `select '\'; copy t from stdin; --'`, `select E'\''; copy t from stdin`,
	} {
		require.True(t, sqlwords.AnyCopies(text), text)
	}
	for _, text := range []string{
		"", "copy", "copy t", "copy t from", "copy t from '/stdin'", "copy t from program 'cat' where a = stdin", "copy stdin to '/f'", "copy (select a from stdin) to '/f'", `copy t from "stdin"`,
		"select 'copy t from stdin'", "select 1; -- copy t from stdin", "insert into copy select * from stdin", "select $$; copy t from stdin$$", "do $$ begin copy t from stdin; end $$", "copy t from stdin_x",
	} {
		require.False(t, sqlwords.AnyCopies(text), text)
	}
}

func TestMentions_WholeWords(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"deferred", "initially DEFERRED,", "do $$ alter table t alter constraint c deferrable$$", "select 'deferrable'", `execute E'\ndeferrable'`, "deferred_until, deferred", "$q$deferrable$q$", "not_deferrable not/**/deferrable",
	} {
		require.True(t, sqlwords.MentionsDeferrable(text), text)
	}
	for _, text := range []string{"", "deferr", "select deferred_until from t", "update t set undeferred = 1, deferred2 = 2", "select deferredä, ädeferred"} {
		require.False(t, sqlwords.MentionsDeferrable(text), text)
	}
	require.False(t, sqlwords.Forgets("select discarded, id_discard from t"))
	require.True(t, sqlwords.Forgets("discard all"))
}

// A text is read whatever it is.
func FuzzAnyControlsTransaction(f *testing.F) {
	for _, text := range []string{"select 1; commit", "E'\\", "$a$;$a$", "/* /* */", "--\n;", "\xff$;", atomic + "end;", "copy (t) to"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		sqlwords.AnyControlsTransaction(text)
		sqlwords.AnyCopies(text + " stdin")
		require.True(t, sqlwords.AnyCopies("copy t from stdin;"+text))
		require.True(t, sqlwords.AnyControlsTransaction("commit;"+text))
	})
}
