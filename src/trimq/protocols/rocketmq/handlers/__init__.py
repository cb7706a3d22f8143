"""Handlers of remoting request codes, one module per family of codes; `tables` maps codes to handlers."""
