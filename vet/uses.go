package vet

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// checkUses finds other connections and contexts in a guarded function, and goroutines with its transaction.
func (c *checker) checkUses(g *guarded) {
	const why = "another connection than the guarded transaction's: what is written there isn't fenced, and what is read there may be out of date"
	ast.PreorderStack(g.body, nil, func(n ast.Node, stack []ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit: // may run later if it is neither called nor given to a call; in a Hold a guarded one is checked by itself
			call, ok := stack[len(stack)-1].(*ast.CallExpr)
			return ok && !c.TypesInfo.Types[call.Fun].IsBuiltin() && c.guardedAt(n.Body.Pos()) == g
		case *ast.GoStmt:
			c.checkGoroutine(g, n)
		}
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		if call, ok := e.(*ast.CallExpr); ok && !g.hold {
			if method, ok := call.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "Go" { // of errgroup.Group and sync.WaitGroup
				c.checkGoroutine(g, call)
			}
			fn := c.callee(call)
			if other := c.around(fn); other != "" && (fn.Signature().Recv() == nil || c.outer(call.Fun, g.scope)) {
				c.report(call, "handle", "%s uses %s, %s; give it the transaction, or call it before or after", types.ExprString(call.Fun), other, why)
			}
		}
		of, other := c.TypesInfo.TypeOf(e), c.outer(e, g.scope) && !c.excused(g.scope, e, stack)
		if isContext(of) && (other || slices.Contains([]string{"context.Background", "context.TODO"}, c.calls(e))) {
			if parent, ok := stack[len(stack)-1].(ast.Expr); !g.hold || ok && strings.HasPrefix(c.calls(parent), module+"guard.") {
				c.report(e, "context", "%s is not the guarded function's own context: it goes on when the lease is lost, and has no grants; use the context that the function gets", types.ExprString(e))
			}
			return false
		}
		if other && isHandle(of) && !g.hold {
			c.report(e, "handle", "%s is %s; use the transaction, or %[1]s before or after the call", types.ExprString(e), why)
			return false
		}
		return true
	})
}

// checkGoroutine finds the transaction, or what was made of it, in what runs in a goroutine.
func (c *checker) checkGoroutine(g *guarded, start ast.Node) {
	for n := range ast.Preorder(start) {
		id, _ := n.(*ast.Ident)
		v := c.root(id)
		if g.hold || v == nil || !g.has(v.Pos()) || start.Pos() <= v.Pos() && v.Pos() < start.End() || isContext(v.Type()) {
			continue
		}
		if isHandle(v.Type()) || v.Pos() < g.typ.Params.End() {
			c.report(id, "goroutine", "a goroutine uses %s: a transaction does one call at a time, and none once its function has returned; call it from the function itself", id.Name)
		}
	}
}

// excused reports whether a use of a handle sends nothing, or binds it to one of s's own.
func (c *checker) excused(s scope, e ast.Expr, stack []ast.Node) bool {
	call, _ := stack[len(stack)-1].(*ast.CallExpr)
	switch parent := stack[len(stack)-1].(type) {
	case *ast.BinaryExpr:
		return true // compared with nil
	case *ast.AssignStmt:
		return slices.Contains(parent.Lhs, e)
	case *ast.SelectorExpr:
		if slices.Contains([]string{"Stat", "Stats", "Config"}, parent.Sel.Name) {
			return true
		}
		call, _ = stack[len(stack)-2].(*ast.CallExpr)
	}
	return call != nil && binds(c.TypesInfo.TypeOf(e)) && slices.ContainsFunc(call.Args, func(arg ast.Expr) bool {
		return c.root(arg) != nil && !c.outer(arg, s) && isHandle(c.TypesInfo.TypeOf(arg))
	})
}

// around returns the connection that a function of this package uses though it isn't given to it, or "". If it also has
// one from elsewhere, such as a transaction from its context, nobody knows which of them it uses when.
func (c *checker) around(fn *types.Func) (other string) {
	s, ok := c.decls[fn]
	if known, seen := c.arounds[fn]; seen || !ok {
		return known
	}
	c.arounds[fn] = "" // while it is looked at: it may call itself
	unknown := false
	ast.PreorderStack(s.body, nil, func(n ast.Node, stack []ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		if call, ok := e.(*ast.CallExpr); ok && other == "" {
			other = c.around(c.callee(call))
		}
		if tv := c.TypesInfo.Types[e]; tv.IsValue() && isHandle(tv.Type) && !c.excused(s, e, stack) {
			if !c.outer(e, s) {
				unknown = true
			} else if other == "" {
				other = types.ExprString(e)
			}
		}
		return true
	})
	if !unknown {
		c.arounds[fn] = other
	}
	return c.arounds[fn]
}

// checkDropped finds calls whose error nobody sees.
func (c *checker) checkDropped() {
	for n := range c.PreorderSeq() {
		var call ast.Expr
		switch n := n.(type) {
		case *ast.ExprStmt:
			call = n.X
		case *ast.GoStmt:
			call = n.Call
		case *ast.DeferStmt:
			call = n.Call
		case *ast.AssignStmt:
			if id, ok := n.Lhs[len(n.Lhs)-1].(*ast.Ident); ok && id.Name == "_" {
				call = n.Rhs[len(n.Rhs)-1]
			}
		}
		if name, ok := strings.CutPrefix(c.calls(call), module+"guard."); ok && slices.Contains([]string{"Do", "Value", "Exec", "Hold"}, name) {
			c.report(call, "dropped", "the error of guard.%s is dropped: it alone tells whether the call took effect; return it or handle it", name)
		}
	}
}

func isContext(t types.Type) bool { return t != nil && t.String() == "context.Context" }

// isHandle reports whether values of t run SQL: pools, connections, transactions, and what sqlc generates.
func isHandle(t types.Type) bool {
	return binds(t) || slices.ContainsFunc([]string{"Exec", "ExecContext", "Query", "QueryContext", "QueryRow", "QueryRowContext"}, func(name string) bool {
		m := paramsOf(t, name)
		return m.Len() == 3 && isContext(m.At(0).Type()) && m.At(1).Type().String() == "string" && slices.Contains([]string{"[]any", "[]interface{}"}, m.At(2).Type().String())
	})
}

// binds reports whether a handle can be bound to a transaction: sqlc's Queries, or GORM.
func binds(t types.Type) bool {
	m := paramsOf(t, "WithTx")
	return t != nil && t.String() == "*gorm.io/gorm.DB" || m.Len() == 1 && isHandle(m.At(0).Type())
}

// paramsOf returns the parameters of a method, or nil.
func paramsOf(t types.Type, name string) *types.Tuple {
	if t == nil {
		return nil
	}
	object, _, _ := types.LookupFieldOrMethod(t, true, nil, name)
	params, _ := object.(*types.Func)
	if params == nil {
		return nil
	}
	return params.Signature().Params()
}
