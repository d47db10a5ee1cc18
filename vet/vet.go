// Package vet is a pass of go/analysis that finds, in code that uses Fencekit, what goes around the fence without an error
// at run time. It looks into the functions that guard.Do, Value, Hold and guardsql.With get: literals, variables set to
// one, functions and methods of the package, also by way of a function of the package that passes them on. It finds
//
//   - handle: a pool, connection or transaction that the function wasn't given. A Hold's function may use one.
//   - context: another context than the function's own.
//   - goroutine: one that the function starts, and that uses its transaction.
//   - resource: a column is updated under one name, and under another elsewhere in the package, but for tests.
//   - dropped: nobody sees the error of guard.Do, Value, Exec or Hold.
//   - stale: a column is set to what was read from it before the call.
//
// Where it can't know it is silent. It sees one package at a time, and SQL in constants only: not what a method of an
// interface, or of another package, does with a pool of its own. Package golangci makes it a plugin of golangci-lint.
package vet

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/types/typeutil"
)

// Analyzer is the pass. It has neither facts nor flags.
var Analyzer = &analysis.Analyzer{
	Name:     "fencekit",
	Doc:      "find what goes around the fence of a guarded function",
	URL:      "https://pkg.go.dev/github.com/fencekit/fencekit/vet",
	Requires: []*analysis.Analyzer{inspect.Analyzer},
	Run:      run,
}

func run(pass *analysis.Pass) (any, error) {
	if !slices.ContainsFunc(pass.Pkg.Imports(), func(p *types.Package) bool { return strings.HasPrefix(p.Path(), module+"guard") }) {
		return nil, nil
	}
	c := &checker{
		Pass: pass, Inspector: pass.ResultOf[inspect.Analyzer].(*inspector.Inspector),
		decls: map[types.Object]scope{}, defs: map[*types.Var]ast.Expr{}, arounds: map[*types.Func]string{},
		takers: map[string]taker{
			module + "guard.Do": {3, false}, module + "guard.Value": {3, false}, module + "guard.Hold": {3, true}, module + "guardsql.With": {0, false}, module + "jobs.Work": {3, true},
		},
	}
	c.index()
	for c.findGuarded() {
	}
	for _, g := range c.guarded {
		if c.guardedAt(g.body.Pos()) == g {
			c.checkUses(g)
		}
	}
	c.checkDropped()
	c.checkResources()
	c.checkStale()
	return nil, nil
}

type checker struct {
	*analysis.Pass
	*inspector.Inspector
	decls   map[types.Object]scope
	defs    map[*types.Var]ast.Expr // what variables are set to, if that is one expression
	takers  map[string]taker
	guarded []*guarded
	arounds map[*types.Func]string
}

// taker says which argument of a function runs guarded, or in a Hold.
type taker struct {
	arg  int
	hold bool
}

const module = "github.com/fencekit/fencekit/"

// scope is a function. Its parameters, and what it declares, are its own; its receiver is not.
type scope struct {
	typ  *ast.FuncType
	body *ast.BlockStmt
}

func (s scope) has(pos token.Pos) bool { return s.typ.Params.Pos() <= pos && pos < s.body.End() }

// guarded is a function that runs in a guarded transaction, or in a Hold, and the call that takes it.
type guarded struct {
	scope
	call *ast.CallExpr
	hold bool
}

func (c *checker) index() {
	for n := range c.PreorderSeq((*ast.FuncDecl)(nil), (*ast.AssignStmt)(nil)) {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil {
				c.decls[c.TypesInfo.Defs[n.Name]] = scope{n.Type, n.Body}
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				v := c.root(left)
				_, again := c.defs[v]
				c.defs[v] = nil
				if v != nil && !again && n.Tok == token.DEFINE && len(n.Rhs) == len(n.Lhs) {
					c.defs[v] = n.Rhs[i]
				}
			}
		}
	}
}

// findGuarded reports whether there are new takers, whose calls it hasn't seen all.
func (c *checker) findGuarded() (more bool) {
	c.guarded = nil
	for cursor := range c.Root().Preorder((*ast.CallExpr)(nil)) {
		call := cursor.Node().(*ast.CallExpr)
		t, arg := c.taken(call)
		if s, ok := c.function(arg); ok {
			c.guarded = append(c.guarded, &guarded{s, call, t.hold})
		} else if v := c.root(arg); v != nil { // a parameter of the function around the call?
			for around := range cursor.Enclosing((*ast.FuncDecl)(nil)) {
				fn := c.TypesInfo.Defs[around.Node().(*ast.FuncDecl).Name].(*types.Func)
				for i := range fn.Signature().Params().Len() {
					if _, known := c.takers[fn.FullName()]; !known && fn.Signature().Params().At(i) == v {
						c.takers[fn.FullName()], more = taker{i, t.hold}, true
					}
				}
			}
		}
	}
	return more
}

// taken returns the argument of a call that runs guarded, or nil.
func (c *checker) taken(call *ast.CallExpr) (t taker, arg ast.Expr) {
	t, ok := c.takers[c.calls(call)]
	if ok && t.arg < len(call.Args) {
		arg = call.Args[t.arg]
	}
	return t, arg
}

// function returns the function that an expression is, if that is known.
func (c *checker) function(e ast.Expr) (scope, bool) {
	var fn types.Object
	switch e := e.(type) {
	case *ast.FuncLit:
		return scope{e.Type, e.Body}, true
	case *ast.CallExpr: // guardsql.With(fn)
		_, arg := c.taken(e)
		return c.function(arg)
	case *ast.SelectorExpr:
		fn = c.TypesInfo.Uses[e.Sel]
	case *ast.Ident:
		fn = c.TypesInfo.Uses[e]
		if v, ok := fn.(*types.Var); ok {
			return c.function(c.defs[v])
		}
	}
	s, ok := c.decls[fn]
	return s, ok
}

// guardedAt returns the outermost function that runs in a transaction and has a position; else a Hold's, or nil.
func (c *checker) guardedAt(pos token.Pos) (found *guarded) {
	for _, g := range c.guarded {
		if g.has(pos) && (found == nil || found.hold && !g.hold) {
			found = g
		}
	}
	return found
}

// calls returns for example "context.Background", or "".
func (c *checker) calls(e ast.Expr) string {
	if call, ok := e.(*ast.CallExpr); ok && c.callee(call) != nil {
		return c.callee(call).FullName()
	}
	return ""
}

// root returns the variable that an expression begins with, such as s of s.pool and s.DB(), or nil.
func (c *checker) root(e ast.Expr) *types.Var {
	switch e := e.(type) {
	case *ast.Ident:
		if v, ok := c.TypesInfo.ObjectOf(e).(*types.Var); ok && !v.IsField() {
			return v
		}
	case *ast.SelectorExpr:
		if v, ok := c.TypesInfo.Uses[e.Sel].(*types.Var); ok && !v.IsField() {
			return v // of another package
		}
		return c.root(e.X)
	case *ast.CallExpr:
		if len(e.Args) == 0 {
			return c.root(e.Fun)
		}
	}
	return nil
}

// outer reports whether an expression begins with a variable that isn't s's own.
func (c *checker) outer(e ast.Expr, s scope) bool {
	v := c.root(e)
	return v != nil && !s.has(v.Pos())
}

func (c *checker) report(at ast.Node, category, format string, args ...any) {
	c.Report(analysis.Diagnostic{Pos: at.Pos(), End: at.End(), Category: category, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) callee(call *ast.CallExpr) *types.Func {
	return typeutil.StaticCallee(c.TypesInfo, call) // nil if that isn't known
}

// line returns file:line.
func (c *checker) line(n ast.Node) string {
	at := c.Fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", at.Filename, at.Line)
}
