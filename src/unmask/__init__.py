"""unmask"""
