package fencekit_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documented are the packages whose errors docs/errors.md explains: those of an
// internal package by their messages alone.
var documented = []string{".", "fence", "fence/etcd", "fence/etcd/internal/*", "guard", "storage/postgres"}

// behind are packages that make errors for those, which export them under names of
// their own.
var behind = []string{"storage", "storage/postgres/internal/operation", "storage/postgres/internal/wire"}

// said is the errors and messages that a user of the packages can get.
type said struct {
	names map[string]bool   // exported errors and error types, such as guard.ErrStaleToken
	texts map[string]string // messages without facts in them, and reasons, and where they are
	// reasons are the constants of types such as storage.Reason, and the types; nil if not wanted
	reasons map[string]string
}

// internal are messages that no user gets, with the reason.
var internal = map[string]string{
	"etcd: acquire failed":      "the cause of a context that stays inside the package",
	"etcd: gave up at its turn": "replaced by the context's error",
	"dry run":                   "rolls a transaction back, and stays inside the package",
}

// Every error, error type, warning and message of the SQL functions is in the
// documentation, word for word, and the documentation names nothing else.
func TestDocs_ExplainEveryError(t *testing.T) {
	page, err := os.ReadFile("docs/errors.md")
	require.NoError(t, err)
	text := strings.Join(strings.Fields(string(page)), " ")
	s := said{names: map[string]bool{}, texts: map[string]string{}}
	for _, dir := range documented {
		s.read(t, dir)
	}
	for _, dir := range behind {
		said{names: map[string]bool{}, texts: s.texts}.read(t, dir)
	}
	for _, name := range []string{"fence.ErrLocked", "*fence.LockedError", "guard.ErrStaleToken", "*guard.RejectedError", "postgres.ErrNotReady", "*postgres.NotReadyError"} {
		require.Contains(t, s.names, name)
	}
	for _, text := range []string{"token jump", "rights are missing", "out of space", "lease expired or revoked", "guard: stale token"} {
		require.Contains(t, s.texts, text)
	}
	require.LessOrEqual(t, len(s.sentinels()), 20, "one for each question that a caller asks; a typed error's Reason tells more: %v", s.sentinels())
	for name := range s.names {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("docs/errors.md doesn't explain %s", name)
		}
	}
	for message, where := range s.texts {
		if internal[message] == "" && !strings.Contains(text, message) {
			t.Errorf("docs/errors.md doesn't have %q of %s", message, where)
		}
	}
	for _, match := range regexp.MustCompile("`\\*?((?:fence|fencekit|etcd|guard|postgres)\\.(?:Err\\w+|\\w+Error))`").FindAllStringSubmatch(text, -1) {
		if !s.names[match[1]] && !s.names["*"+match[1]] {
			t.Errorf("docs/errors.md explains %s, which is not there", match[1])
		}
	}
	checkSQL(t, text)
}

// sentinels returns the sentinels, each once: guard has some of fence's.
func (s said) sentinels() map[string]bool {
	all := map[string]bool{}
	for name := range s.names {
		if _, sentinel, _ := strings.Cut(name, "."); strings.HasPrefix(sentinel, "Err") {
			all[sentinel] = true
		}
	}
	return all
}

// read reads the Go files of a directory.
func (s said) read(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		s.take(tree, file)
	}
}

func (s said) take(tree *ast.File, file string) {
	public := !strings.Contains(file, "/internal/")
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for _, name := range n.Names {
				if public && regexp.MustCompile(`^Err[A-Z]`).MatchString(name.Name) {
					s.names[tree.Name.Name+"."+name.Name] = true
				}
			}
			if reason, typ, ok := reasonOf(n); ok {
				s.texts[reason] = file
				if s.reasons != nil {
					s.reasons[reason] = typ
				}
			}
		case *ast.TypeSpec:
			if public && n.Name.IsExported() && strings.HasSuffix(n.Name.Name, "Error") {
				s.names["*"+tree.Name.Name+"."+n.Name.Name] = true
			}
		case *ast.CallExpr:
			if message, ok := spoken(n); ok {
				s.texts[message] = file
			}
			if message, ok := formatted(n); ok {
				s.texts[message] = file
			}
		}
		return true
	})
}

// reasonOf returns the text of a constant of a type such as storage.Reason, and the type.
func reasonOf(spec *ast.ValueSpec) (reason, typ string, ok bool) {
	ident, isIdent := spec.Type.(*ast.Ident)
	if !isIdent || !strings.HasSuffix(ident.Name, "Reason") || len(spec.Values) != 1 {
		return "", "", false
	}
	literal, isLiteral := spec.Values[0].(*ast.BasicLit)
	if !isLiteral {
		return "", "", false
	}
	reason, err := strconv.Unquote(literal.Value)
	return reason, ident.Name, err == nil
}

// spoken returns the message of errors.New, or of a warning or error in a log, if
// it is a constant.
func spoken(call *ast.CallExpr) (message string, ok bool) {
	fun, isSelector := call.Fun.(*ast.SelectorExpr)
	if !isSelector {
		return "", false
	}
	n := map[string]int{"Warn": 0, "Error": 0, "WarnContext": 1, "ErrorContext": 1, "New": 0}
	at, speaks := n[fun.Sel.Name]
	if r, isLog := fun.X.(*ast.Ident); isLog && r.Name == "r" && fun.Sel.Name == "log" && len(call.Args) > 1 {
		level, isLevel := call.Args[0].(*ast.SelectorExpr)
		at, speaks = 1, isLevel && (level.Sel.Name == "LevelWarn" || level.Sel.Name == "LevelError")
	}
	if !speaks || len(call.Args) <= at {
		return "", false
	}
	literal, isLiteral := call.Args[at].(*ast.BasicLit)
	if !isLiteral || literal.Kind != token.STRING {
		return "", false
	}
	message, err := strconv.Unquote(literal.Value)
	return message, err == nil && strings.Contains(message, " ") && !strings.HasPrefix(message, "has ") && !strings.HasPrefix(message, "is ") && !strings.HasPrefix(message, "want ")
}

// formatted returns the form of a message with facts in it, with … for each fact,
// up to what it wraps. It begins with the name of a package.
func formatted(call *ast.CallExpr) (message string, ok bool) {
	fun, isSelector := call.Fun.(*ast.SelectorExpr)
	if !isSelector || fun.Sel.Name != "Errorf" && fun.Sel.Name != "Sprintf" || len(call.Args) == 0 {
		return "", false
	}
	literal, isLiteral := call.Args[0].(*ast.BasicLit)
	if !isLiteral {
		return "", false
	}
	format, err := strconv.Unquote(literal.Value)
	if err != nil || !regexp.MustCompile(`^(fence|etcd|guard|postgres): `).MatchString(format) {
		return "", false
	}
	message = regexp.MustCompile(`%[a-z]`).ReplaceAllString(format, "…")
	message = regexp.MustCompile(`(: …)+$`).ReplaceAllString(message, "")
	return message, len(message) > len("postgres: …: …")
}

// checkSQL checks the messages that the migrations raise.
func checkSQL(t *testing.T, text string) {
	t.Helper()
	raised := regexp.MustCompile(`raise exception '((?:[^']|'')*)'`)
	states := regexp.MustCompile(`'(ZF\d\d\d)'`)
	require.NoError(t, fs.WalkDir(os.DirFS("storage/postgres/migrations"), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		sql, err := os.ReadFile(filepath.Join("storage/postgres/migrations", path))
		for _, match := range raised.FindAllSubmatch(sql, -1) {
			message := strings.ReplaceAll(strings.ReplaceAll(string(match[1]), "''", "'"), "%", "…")
			if !strings.Contains(text, "`"+message+"`") {
				t.Errorf("docs/errors.md doesn't have %q of %s", message, path)
			}
		}
		for _, match := range states.FindAllSubmatch(sql, -1) {
			if !strings.Contains(text, "`"+string(match[1])+"`") {
				t.Errorf("docs/errors.md doesn't have SQLSTATE %s of %s", match[1], path)
			}
		}
		return err
	}))
}
