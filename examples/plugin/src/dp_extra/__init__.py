"""What a package of somebody else brings to sottovoce: a method, a command and an audit."""
